//! Templates that would take the process down: each is refused in bounded time, at load or when it
//! renders, and names its file.

use std::time::{Duration, Instant};

use asynclane_text::{Message, TextError};

use crate::fixtures::with_template;

/// Far more than the slowest of these takes on a machine that does other work beside.
const LONG: Duration = Duration::from_secs(30);

fn render(template: &str, content: &str) -> Result<String, TextError> {
    let messages = [Message::new("user", content)];
    with_template(template)?.chat_template()?.render(&messages, true)
}

/// Asserts that a template is refused in bounded time.
fn refused(template: &str) {
    let begin = Instant::now();
    let error = render(template, "a").unwrap_err().to_string();
    let shown: String = template.chars().take(80).collect();
    assert!(begin.elapsed() < LONG, "{:?}: {shown}", begin.elapsed());
    let named = error.contains("tokenizer_config.json: ");
    assert!(named, "{shown}: {error}");
}

#[test]
fn growing_values_are_refused_before_they_are_made() {
    let doubled = "{% set s = s ~ s %}".repeat(60);
    let lists = "{% set a = [a, a] %}".repeat(60);
    let attacks = [
        "{{ 'a' | indent(1000000000, true) }}".to_owned(),
        "{{ ('a\n' * n) | indent(1000000) }}".replace('n', "messages|length * 9000"),
        "{% set s = 'a' %}{% for i in range(60) %}{% set s = s ~ s %}{{ s }}{% endfor %}{{ 1 }}\
         {% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}"
            .to_owned(),
        format!("{{% set s = 'ab' %}}{doubled}"),
        format!("{{% set s = 'ab' %}}{}", doubled.replace('~', "+")),
        "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s.replace('b', 'bbab') %}\
         {% endfor %}".to_owned(),
        "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s|replace('', n.s) %}\
         {% endfor %}".to_owned(),
        "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s.join([n.s, n.s]) %}\
         {% endfor %}".to_owned(),
        "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s %}{{ n.s }}{{ n.s }}\
         {% endset %}{% endfor %}".to_owned(),
        "{% macro m(s, i) %}{% if i %}{{ m(s ~ s, i - 1) }}{% endif %}{% endmacro %}{{ m('ab', 60) }}"
            .to_owned(),
        "{{ '%099999999d' | format(1) }}".to_owned(),
        "{{ '%.99999999f' | format(1) }}".to_owned(),
        "{{ '%*d' | format(99999999, 1) }}".to_owned(),
        "{{ '{:>99999999}'.format(1) }}".to_owned(),
        "{{ '%099999999d' % 1 }}".to_owned(),
        "{{ '%*d' % (99999999, 1) }}".to_owned(),
        "{{ 'a' | indent(width=1000000000, first=true) }}".to_owned(),
        "{{ 'a'.ljust(1000000000) }}{{ 'a'.zfill(1000000000) }}".to_owned(),
        "{% set n = namespace(s='ab') %}{% for i in range(60) %}\
         {% set n.s = n.s.replace('b', new=n.s) %}{% endfor %}".to_owned(),
        "{% set n = namespace(s='ab') %}{% for i in range(60) %}\
         {% set n.s = [n.s, n.s] | join(d=n.s) %}{% endfor %}".to_owned(),
        "{{ range(100000) | list | batch(linecount=1000000000, fill_with='x') | list }}".to_owned(),
        "{{ messages | tojson(indent=messages[0].content ~ 'a' * messages | length * 100) }}".to_owned(),
        "{{ messages[0].content * 4000000000 }}".to_owned(),
        "{{ 'ab' * 100000000 }}".to_owned(),
        "{{ ('ab' ~ 'c') * (10 * 10000000) }}".to_owned(),
        "{{ 'a' * 30000 }}".repeat(5_000),
        "{{ 'ab' * 2 ** 40 }}".to_owned(),
        format!("{{% set a = ['x'] %}}{lists}{{{{ a }}}}"),
        format!("{{% set a = ['x'] %}}{lists}{{{{ a == a }}}}"),
        format!("{{% set a = ['x'] %}}{lists}{{{{ a | tojson }}}}"),
        "{% set n = namespace(a=['x']) %}{% for i in range(99999) %}{% set n.a = [n.a] %}{% endfor %}"
            .to_owned(),
        "{% set n = namespace() %}{% set n.a = [n] %}{% set n.b = [n] %}{{ n.b }}".to_owned(),
        "{{ range(100000) | list | batch(1000000000, 'x') | list }}".to_owned(),
        "{{ range(9) | slice(1000000000) | list }}".to_owned(),
        format!("{{% for i in range(99999) %}}{}{{% endfor %}}", "x".repeat(9_000)),
        format!("{{% set y %}}{{% for i in range(99999) %}}{}{{% endfor %}}{{% endset %}}", "x".repeat(9_000)),
    ];
    for template in attacks {
        refused(&template);
    }
}

#[test]
fn deep_and_large_templates_are_refused_at_load() {
    let attacks = [
        format!("{{{{ {}1 }}}}", "not ".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(20_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(20_000)),
        format!("{{{{ 1{} }}}}", "+1".repeat(20_000)),
        format!("{{{{ 'a'{} }}}}", "~'a'".repeat(20_000)),
        format!("{{{{ a{} }}}}", ".a".repeat(20_000)),
        format!("{{{{ a{} }}}}", "|upper".repeat(20_000)),
        format!("{{{{ {}1{} }}}}", "(".repeat(20_000), ")".repeat(20_000)),
        format!("{{{{ {}1{} }}}}", "[".repeat(1_000), "]".repeat(1_000)),
        "{% if a %}".repeat(20_000),
        "{% if a %}{% elif b %}".repeat(9_000),
        format!("{{% if a %}}{}{{% endif %}}", "{% elif b %}x".repeat(9_000)),
        "{% for a in b %}".repeat(9_000),
        "x".repeat(300_000),
    ];
    for template in attacks {
        refused(&template);
    }
}

#[test]
fn recursion_and_loops_are_bounded() {
    for template in [
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for a in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{% block a %}{{ self.a() }}{% endblock %}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
    ] {
        refused(template);
    }
}

#[test]
fn long_chats_within_the_limits_are_rendered() {
    let template = "{{ bos_token }}{% for m in messages %}{% set content = m['content'] | trim %}\
                    {% if m.role == 'user' and '<x>' not in content %}{{ '[' + content + ']' }}\
                    {% else %}{{ m.role ~ content.split('</x>')[-1] }}{% endif %}{% endfor %}\
                    {% if (messages|length + 1) % 2 == 0 %}{{ '=' * messages|length }}{% endif %}";
    let tokenizer = with_template(template).unwrap();
    let chat = tokenizer.chat_template().unwrap();
    let message = |content: String| Message::new("user", &content);
    let many: Vec<Message> = (0..2_001).map(|index| message(format!("text {index}"))).collect();
    let text = chat.render(&many, true).unwrap();
    let end = &text[text.len() - 80..];
    assert!(text.contains("[text 1999][text 2000]="), "{end}");
    let long = message("word ".repeat(2_000_000));
    let rendered = chat.render(&[long], true).unwrap();
    assert_eq!(rendered.len(), 15 + 10_000_000 - 1 + 2 + 1);
    // More than any request has: the fault of the client.
    let longer = message("x".repeat(40 << 20));
    let error = chat.render(&[longer], true).unwrap_err();
    assert!(matches!(error, TextError::Refused(_)), "{error}");
}
