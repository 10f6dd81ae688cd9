//! Tables rendered from small results.

use super::*;

const RESULT: &str = r#"{"command":"asynclane bench","machine":"m","task":"sums",
    "problems":2,"max_tokens":8,"concurrency":1,"decoders":[{"name":"vanilla","label":"l",
    "end":90.0,"strict":50.0,"nfe_per_token":1.0,"positions_per_token":2.0,"tokens":3,
    "tps":4.0,"ratio":1.0,"overhead":0.1}]}"#;

#[test]
fn a_table_is_made_from_its_file_and_a_changed_figure_is_found() {
    let result = File::new("r.json", RESULT);
    let empty = format!("a\n{START}r.json -->\n{END}\nb\n");
    let full = rendered(&empty, std::slice::from_ref(&result)).unwrap();
    assert!(
        full.contains("| `vanilla` | 90.0 | 50.0 | 1.000 | 2.0 | 4 | 1.00x |"),
        "{full}"
    );
    assert!(full.starts_with("a\n") && full.ends_with(&format!("{END}\nb\n")));
    let changed = full.replace("90.0", "91.0");
    let problems =
        |text: &str| check(&[File::new("README.md", text), File::new("r.json", RESULT)]).len();
    assert_eq!((problems(&full), problems(&changed)), (0, 1));
}

#[test]
fn an_infilling_result_has_a_table_of_its_own() {
    let result = r#"{"command":"asynclane bench --infill","machine":"m","task":"sums",
        "problems":2,"hidden_tokens":14.5,"infill":[{"name":"vanilla","plain_strict":20.0,
        "plain_exact":10.0,"infill_strict":60.0,"infill_exact":50.0,
        "infill_nfe_per_token":1.0}]}"#;
    let empty = format!("{START}r.json -->\n{END}\n");
    let full = rendered(&empty, &[File::new("r.json", result)]).unwrap();
    assert!(
        full.contains("| `vanilla` | 20.0 | 10.0 | 60.0 | 50.0 | 1.000 |"),
        "{full}"
    );
}

#[test]
fn a_result_beside_other_code_has_a_table_of_its_own() {
    let result = r#"{"command":"python fast_dllm.py","machine":"m, f32","torch":"2.5.1",
        "task":"sums","problems":2,"max_tokens":256,"peers":[{"name":"theirs","end":90.0,
        "strict":50.0,"nfe_per_token":0.6,"tps":60.0,"ratio":1.0}]}"#;
    let empty = format!("{START}r.json -->\n{END}\n");
    let full = rendered(&empty, &[File::new("r.json", result)]).unwrap();
    let row = "| theirs | 90.0 | 50.0 | 0.600 | 60 | 1.00x |";
    assert!(
        full.contains(row) && full.contains("PyTorch 2.5.1"),
        "{full}"
    );
}

#[test]
fn steps_in_long_contexts_have_a_row_each() {
    let result = r#"{"command":"cargo run","machine":"m","geometry":"g","contexts":[{"kv":"int8",
        "slots":4096,"rows":32,"ms":100.0,"gb":1.5,"least_ms":50.0,"ratio":2.0,
        "attention_ms":20.0,"attention_least_ms":10.0,"attention_of_peak":60.0}]}"#;
    let empty = format!("{START}r.json -->\n{END}\n");
    let full = rendered(&empty, &[File::new("r.json", result)]).unwrap();
    let row = "| int8 | 4096 | 32 | 100.0 | 1.50 | 50.0 | 2.00x | 20.0 | 10.0 | 60 |";
    assert!(full.contains(row), "{full}");
}

#[test]
fn paired_rows_show_what_each_solves_alone() {
    let entry = |name: &str, strict: f64, paired: &str| {
        format!(
            r#"{{"name":"{name}","end":90.0,"strict":{strict},"nfe_per_token":1.0,
            "positions_per_token":6.0,"tps":4.0,"ratio":1.0{paired}}}"#
        )
    };
    let overall = |name: &str, strict: f64| {
        format!(
            r#"{{"name":"{name}","end":90.0,"strict":{strict},"nfe_per_token":0.5,
            "positions_per_token":2.0,"agreement":98.0,"ratio":1.0,"pareto":true}}"#
        )
    };
    let result = format!(
        r#"{{"command":"c","machine":"m","problems":2,"max_tokens":8,"concurrency":1,
        "tasks":[{{"task":"sums","decoders":[{},{}]}}],"overall":[{},{}],"derived":[]}}"#,
        entry(
            "a",
            50.0,
            r#","paired":{"won":0,"lost":0,"interval":[-1.0,1.0],"p":1.0}"#
        ),
        entry(
            "b",
            49.0,
            r#","paired":{"won":1,"lost":3,"interval":[-2.5,0.5],"p":0.6}"#
        ),
        overall("a", 50.0),
        overall("b", 49.0),
    );
    let empty = format!("{START}r.json paired -->\n{END}\n");
    let full = rendered(&empty, &[File::new("r.json", &result)]).unwrap();
    for row in [
        "| `a` | 50.0 | 50.0 | 98.0 | 0.500 | 1.000 | 1.500 |",
        "| `b` | 49.0 (+1 -3, -2.5 to 0.5) | 49.0 | 98.0 | 0.500 | 1.000 | 1.500 |",
    ] {
        assert!(full.contains(row), "{full}");
    }
    let empty = format!("{START}r.json counts -->\n{END}\n");
    let full = rendered(&empty, &[File::new("r.json", &result)]).unwrap();
    assert!(full.contains("| `b` | 49.0 @ 1.000, 6.0 |"), "{full}");
}

#[test]
fn a_diffusion_model_has_a_row_per_file_and_decoder() {
    let result = r#"{"command":"c","machine":"m","geometry":"g","length":256,"diffusion":[
        {"format":"Q8_0","name":"vanilla","forwards":64,"ms":6400.4,"ms_per_forward":100.01,
        "ratio":1.5}]}"#;
    let empty = format!("{START}r.json -->\n{END}\n");
    let full = rendered(&empty, &[File::new("r.json", result)]).unwrap();
    let row = "| Q8_0 | vanilla | 64 | 6400 | 100.0 | 1.50x |";
    assert!(full.contains(row), "{full}");
}

#[test]
fn routers_have_a_row_each_with_the_range_of_their_rounds() {
    let result = r#"{"command":"tests/routers/run","machine":"m","requests":96,"clients":8,
        "routers":[{"name":"none","requests_per_second":[30.0,10.0,20.0],
        "two_over_one":[1.5,1.75,1.25]},{"name":"some 1.0","requests_per_second":[4.0,6.0],
        "two_over_one":[1.0,2.0],"of_direct":[0.5],"plain_added_ms":[-0.25],
        "plain_ratio":[1.125],"streamed_added_ms":[3.0],"one_token_added_ms":[2.0]}]}"#;
    let empty = format!("{START}r.json -->\n{END}\n");
    let full = rendered(&empty, &[File::new("r.json", result)]).unwrap();
    for row in [
        "96 requests by 8 clients, 3 rounds, m, ",
        "| none | 20.00 (10.00 to 30.00) | 1.50x (1.25 to 1.75) | – | – | – | – | – |",
        "| some 1.0 | 5.00 (4.00 to 6.00) | 1.50x (1.00 to 2.00) | 0.50x (0.50 to 0.50) |",
        " -0.25 (-0.25 to -0.25) | 3.00 (3.00 to 3.00) | 2.00 (2.00 to 2.00) |",
    ] {
        assert!(full.contains(row), "{full}");
    }
}

#[test]
fn several_problem_sets_make_one_table_the_fastest_decoder_first() {
    let entry = |name: &str, end: f64, strict: f64| {
        format!(
            r#"{{"name":"{name}","label":"l","end":{end},"strict":{strict},"tokens":3,
            "nfe_per_token":1.0,"positions_per_token":2.0,"tps":4.0,"ratio":1.0,
            "overhead":0.1}}"#
        )
    };
    let result = format!(
        r#"{{"command":"asynclane bench","machine":"m","problems":2,"max_tokens":8,
        "concurrency":1,"tasks":[{{"task":"sums","decoders":[{},{}]}},
        {{"task":"lists","decoders":[{},{}]}}],"overall":[
        {{"name":"vanilla","label":"l","end":90.0,"strict":80.0,"nfe_per_token":1.0,
        "positions_per_token":2.0,"agreement":100.0,"ratio":1.0,"pareto":true}},
        {{"name":"fast","label":"l","end":70.0,"strict":60.0,"nfe_per_token":0.5,
        "positions_per_token":1.5,"ratio":3.0,"pareto":false}}],"derived":[
        {{"preset":"quality","within":0.5,"surely":true,"decoder":"vanilla","cost":1.0}}]}}"#,
        entry("vanilla", 91.0, 81.0),
        entry("fast", 71.0, 61.0),
        entry("vanilla", 89.0, 79.0),
        entry("fast", 69.0, 59.0),
    );
    let empty = format!("{START}r.json -->\n{END}\n");
    let full = rendered(&empty, &[File::new("r.json", &result)]).unwrap();
    let rows: Vec<&str> = full.lines().filter(|line| line.starts_with('|')).collect();
    let columns = |row: &str| row.matches('|').count();
    assert!(rows.iter().all(|row| columns(row) == 11), "{full}");
    assert_eq!(
        rows[2..],
        [
            "| `fast` |  | 3.00x | 70.0 | 60.0 | 0.500 | 1.5 | – | 71.0 / 61.0 | 69.0 / 59.0 |",
            "| `vanilla` | ● | 1.00x | 90.0 | 80.0 | 1.000 | 2.0 | 100.0 | 91.0 / 81.0 \
             | 89.0 / 79.0 |",
        ]
    );
    assert!(
        full.contains("*quality* (surely within 0.5 points) is `vanilla`."),
        "{full}"
    );
    let short = format!("{START}r.json presets quality fast -->\n{END}\n");
    let short = rendered(&short, &[File::new("r.json", &result)]).unwrap();
    assert!(
        short.contains("| `quality` | 80.0 % | 1.00 | 2 |\n| `fast` | 60.0 % | 0.50 | 2 |"),
        "{short}"
    );
    let sets = format!("{START}r.json sets quality fast -->\n{END}\n");
    let sets = rendered(&sets, &[File::new("r.json", &result)]).unwrap();
    assert!(
        sets.contains("| `quality` | 81.0 % | 79.0 % |\n| `fast` | 61.0 % | 59.0 % |"),
        "{sets}"
    );
    let unknown = format!("{START}r.json presets slow -->\n{END}\n");
    assert!(rendered(&unknown, &[File::new("r.json", &result)]).is_err());
    let text = "a <!-- value: r.json ratio fast -->?<!-- -->x <!-- value: r.json strict quality --><!-- --> b";
    let numbers = rendered(text, &[File::new("r.json", &result)]).unwrap();
    assert!(numbers.contains("-->3.0<!-- -->x") && numbers.ends_with("-->80.0<!-- --> b"));
    assert!(
        rendered(
            &text.replace("fast", "slow"),
            &[File::new("r.json", &result)]
        )
        .is_err()
    );
    let unknown = format!("{START}r.json only fast -->\n{END}\n");
    assert!(rendered(&unknown, &[File::new("r.json", &result)]).is_err());
}

#[test]
fn a_result_with_latencies_and_without_grades_shows_the_ones_alone() {
    let waited = r#""strict":50.0,"latency":{"ttft_ms":[1.0,2.0,3.0],"tpot_ms":[0.5,0.6,0.7],
        "e2e_ms":[9.0,9.5,10.0]},"#;
    let result = RESULT.replace(r#""strict":50.0,"#, waited);
    let result = result.replace(
        r#""max_tokens":8,"#,
        r#""max_tokens":[8,16],"ungraded":true,"#,
    );
    let empty = format!("{START}r.json -->\n{END}\n");
    let full = rendered(&empty, &[File::new("r.json", &result)]).unwrap();
    let row = "| `vanilla` | 1.000 | 2.0 | 4 | 1.00x | 1.0 / 3.0 | 0.5 / 0.7 | 9.0 / 10.0 |";
    assert!(
        full.contains(row) && full.contains("budget 8, 16, concurrency 1"),
        "{full}"
    );
    assert!(!full.contains("90.0"), "{full}");
}

#[test]
fn a_missing_file_is_a_problem() {
    let text = format!("{START}gone.json -->\n{END}\n");
    assert!(rendered(&text, &[]).is_err());
}

#[test]
fn forward_passes_have_a_row_per_size_and_a_column_per_profile() {
    let result = r#"{"command":"cargo run","machine":"m","geometry":"demo","dtype":"f32",
        "context":192,"forward":[{"rows":64,"ms":1.5,"products_of_peak":80.0,
        "forward_of_peak":70.0}],"profiles":[{"sequences":1,"rows":40,"ms":2.0,
        "products_of_peak":75.0,"forward_of_peak":60.0,"work":88.0,
        "parts":[["norm",12.0],["linear",88.0]],"threads_busy":1.9,"system":0.1}]}"#;
    let empty = format!("{START}r.json -->\n{END}\n");
    let full = rendered(&empty, &[File::new("r.json", result)]).unwrap();
    for row in [
        "| 64 | 1.500 | 80 | 70 |",
        "| % of the wall time | 1 x 40 rows |",
        "| norm | 12.0 |",
        "| **linear, head and attention** | **88.0** |",
        "| threads busy | 1.90 |",
    ] {
        assert!(full.contains(row), "{row} is not in {full}");
    }
}

#[test]
fn forward_passes_of_several_sides_have_ratios() {
    let result = r#"{"command":"python forward.py","machine":"m","geometry":"demo",
        "forward":[{"name":"PyTorch","rows":64,"ms":3.0,"ratio":1.0},
        {"name":"asynclane","rows":64,"ms":1.5,"ratio":2.0}]}"#;
    let empty = format!("{START}r.json -->\n{END}\n");
    let full = rendered(&empty, &[File::new("r.json", result)]).unwrap();
    assert!(
        full.contains("| asynclane | 64 | 1.500 | 2.00x |"),
        "{full}"
    );
    assert!(!full.contains("peak"), "{full}");
}
