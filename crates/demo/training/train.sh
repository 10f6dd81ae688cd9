#!/usr/bin/env bash
# Reproduces the demo checkpoint: environment, tokenizer, training, evaluation.
# Usage: ./train.sh [output folder] [minutes]
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-out}
minutes=${2:-120}

if [ ! -d .venv ]; then
  python3 -m venv .venv
  .venv/bin/pip install --quiet -r requirements.txt
fi
cargo build --release --quiet --manifest-path ../../../tests/lab/Cargo.toml
.venv/bin/python tokenizer.py --out "$out"
.venv/bin/python train.py --tokenizer "$out" --out "$out" --minutes "$minutes" --compile
.venv/bin/python evaluate.py --model "$out" --json "$out/accuracy.json"
