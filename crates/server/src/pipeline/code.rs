//! Whether a prompt asks for code, which decides how lanes fork under `fork = auto`.

/// Line beginnings that prose hardly ever has.
const OPENINGS: &[&str] = &[
    "def ",
    "class ",
    "import ",
    "from ",
    "fn ",
    "pub ",
    "func ",
    "function ",
    "const ",
    "let ",
    "#include",
    "package ",
    "public ",
    "private ",
    "static ",
    "struct ",
    "impl ",
];

/// Line endings that go with them.
const ENDINGS: &[char] = &[':', '{', '}', ';', ')', '>'];

/// Whether `prompt` is code-shaped: it holds a fence, or a line that opens and ends like a line
/// of a program.
pub fn is_code_shaped(prompt: &str) -> bool {
    prompt.contains("```")
        || prompt.lines().any(|line| {
            let line = line.trim();
            OPENINGS.iter().any(|opening| line.starts_with(opening))
                && (line.ends_with(ENDINGS) || line.starts_with("import "))
        })
}
