//! Snippets in words of their own are judged by what they do; no text does more than that.

use asynclane_problems::{Problem, grade};

const PROMPT: &str = "Complete the function.\ndef run(xs):\n    \"\"\"Use a loop. Keep the odd numbers in \
                      xs, square each and return the sorted list.\"\"\"\n";

#[test]
fn a_body_is_judged_by_its_behaviour() {
    let problem = Problem::from_prompt(PROMPT).expect("a snippet");
    let right = "    return sorted([n * n for n in xs if n % 2])";
    for (body, expected) in [
        (right, true),
        ("    return sorted(v * v for v in filter(lambda v: v % 2, xs))", true),
        ("    return sorted([n * n for n in xs])", false),
        ("    return None", false),
        ("    return xs.missing", false),
        ("    return sorted(", false),
        ("return 1", false),
        ("    return 1\nprint(2)", false),
        ("    while True:\n        pass", false),
        ("    return [0] * (1 << 40)", false),
        ("    return run(xs)", false),
        ("    import os\n    return os.getcwd()", false),
        ("    return open('/etc/passwd').read()", false),
        ("    return xs.__class__.__mro__", false),
        ("    return (n for n in xs).gi_frame.f_back", false),
    ] {
        let graded = grade(&problem, body).expect("python3 runs");
        assert_eq!((graded.end, graded.strict), (expected, false), "{body}");
    }
    // A body that was killed leaves the interpreter as it was.
    assert!(grade(&problem, right).expect("python3 runs").end);
}
