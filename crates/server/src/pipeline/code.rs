//! Detects prompts that ask for code: `fork = auto` then starts with the newline rule.

/// Line beginnings of programs that are rare in prose.
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

/// Line endings of such lines.
const ENDINGS: &[char] = &[':', '{', '}', ';', ')', '>'];

/// True if `prompt` contains a code fence, or a line that begins and ends like a line of a program.
pub fn is_code_shaped(prompt: &str) -> bool {
    prompt.contains("```")
        || prompt.lines().any(|line| {
            let line = line.trim();
            OPENINGS.iter().any(|opening| line.starts_with(opening))
                && (line.ends_with(ENDINGS) || line.starts_with("import "))
        })
}
