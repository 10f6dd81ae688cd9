//! The embedded demo models: their checkpoints, and one prompt per kind of problem that they answer.
//!
//! The models are small and know four kinds of problems (word sums, Python snippets, lists, calls) in a
//! fixed set of wordings. The laboratory generates those problems and grades answers;
//! `training/README.md` beside these sources is the model card and the training recipe.
#![deny(missing_docs)]

pub mod checkpoint;

/// One prompt of each family, in the order sums, snippets, lists: for documents, the playground and
/// the self-test of a device.
pub const EXAMPLES: [&str; 3] = [
    "Tom has 9 coins. Then he buys 6 more coins. Next he loses 3 coins. \
     How many coins does Tom have now?",
    "Complete the function.\ndef solve(a, b):\n    \"\"\"Start with a, then multiply by 3, \
     then subtract b and return it.\"\"\"\n",
    "Reverse the list coins, eggs, books, pens.",
];
