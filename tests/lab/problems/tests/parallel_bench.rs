//! The families of ParallelBench (arXiv 2510.04767): what is right where many answers are.

use asynclane_problems::{Problem, grade};

fn graded(prompt: &str, output: &str) -> (bool, bool) {
    let problem = Problem::from_prompt(prompt).expect("a prompt of a family");
    let graded = grade(&problem, output).expect("python3 runs");
    (graded.end, graded.strict)
}

/// ParallelBench's first family: where any place will do, every place is right and nothing else.
#[test]
fn any_right_line_is_right() {
    let asked = |what: &str| {
        format!(
            "The waiting line is Abby, Bruno, Carla. {what} Answer with the new line alone, names \
             separated by commas."
        )
    };
    let (right, loose, wrong) = ((true, true), (true, false), (false, false));
    for (what, output, expected) in [
        ("Copy it.", "Abby, Bruno, Carla", right),
        ("Reverse it.", "Carla, Bruno, Abby", right),
        ("Put it into any other order.", "Bruno, Carla, Abby", right),
        ("Put it into any other order.", "Abby, Bruno, Carla", wrong),
        ("Put it into any other order.", "Abby, Abby, Carla", wrong),
        ("Insert Hugo at place 4.", "Abby, Bruno, Carla, Hugo", right),
        (
            "Insert Hugo at any place.",
            "Hugo, Abby, Bruno, Carla",
            right,
        ),
        (
            "Insert Hugo at any place.",
            "Hugo, Abby, Hugo, Bruno, Carla",
            wrong,
        ),
        ("Remove place 2.", "Abby, Carla", right),
        ("Remove any one customer.", "Bruno, Carla", right),
        (
            "Remove any one customer.",
            "The new line is: Bruno, Carla.",
            loose,
        ),
        ("Remove any one customer.", "Carla", wrong),
        ("Replace place 1 by Hugo.", "Hugo, Bruno, Carla", right),
        (
            "Replace any one customer by Hugo.",
            "Abby, Bruno, Hugo",
            right,
        ),
    ] {
        assert_eq!(graded(&asked(what), output), expected, "{what} {output}");
    }
    for what in [
        "Remove place 4.",
        "Insert Hugo at place 5.",
        "Insert Zoe at any place.",
    ] {
        assert_eq!(Problem::from_prompt(&asked(what)), None, "{what}");
    }
}

/// ParallelBench's third family.
#[test]
fn any_right_square_is_right() {
    let latin = "Write any Latin square of the symbols A, B, C: every symbol is once in every row and \
                 once in every column. Answer with the rows alone, one in a line, symbols separated by \
                 blanks.";
    assert_eq!(graded(latin, "A B C\nB C A\nC A B"), (true, true));
    assert_eq!(graded(latin, "Here:\nC B A\nA C B\nB A C\n"), (true, false));
    assert_eq!(graded(latin, "A B C\nB C A\nC B A"), (false, false));
    let sudoku = |clues: &str| {
        format!(
            "Solve this Sudoku of the digits 1 to 4, where 0 is an open cell:\n{clues}\nAnswer with \
             the rows alone, one in a line, digits separated by blanks."
        )
    };
    let clues = sudoku("0 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 0");
    assert_eq!(
        graded(&clues, "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1"),
        (true, true)
    );
    assert_eq!(
        graded(&clues, "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 1 2"),
        (false, false)
    );
    // A Sudoku of many solutions is no problem of the family.
    assert_eq!(
        Problem::from_prompt(&sudoku("0 0 0 0\n0 0 0 0\n0 0 0 0\n0 0 0 1")),
        None
    );
}
