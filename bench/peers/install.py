"""Give every toolkit a virtual environment of its own, and all of them the same pieces of Multi30k.

    python -m bench.peers.install --peers-folder DIR [--peers eole,onmt] [--data $SACCADE_DATA/multi30k]

torch is installed once, in DIR/venv/base; the others find it there through a .pth file, so that all run the same build.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from bench.peers.fairseq_repair import SITECUSTOMIZE

TORCH = "torch==2.13.0"
PEERS: dict[str, tuple[tuple[str, ...], ...]] = {
    # Each tuple is one call of pip. Packages that a toolkit imports without declaring them stand beside it.
    "eole": (("eole==0.6.4", "aiohttp"),),
    # OpenNMT-py asks for torch < 2.3, but runs with 2.13: it comes without its dependencies, which are named here.
    "onmt": (
        ("configargparse", "ctranslate2>=4,<5", "tensorboard", "flask", "waitress", "pyyaml", "sacrebleu", "rapidfuzz"),
        ("pyahocorasick", "six", "pyonmttok>=1.37,<2", "sentencepiece", "spacy", "fasttext-wheel"),
        ("--no-deps", "OpenNMT-py==3.5.1"),
    ),
    # fairseq was written for numpy < 1.24.
    "fairseq": (("fairseq==0.12.2",), ("numpy==1.23.5",)),
    "hf": (("transformers==5.22.2", "accelerate==1.15.0", "sentencepiece"),),
    # JoeyNMT calls sentencepiece's SetVocabulary, which 0.2.1 and later do not have.
    "joeynmt": (("joeynmt==2.3.0", "importlib_metadata", "sentencepiece==0.2.0"),),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.install")
    parser.add_argument("--peers-folder", type=Path, required=True)
    parser.add_argument("--peers", default="eole,onmt,fairseq,hf", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("SACCADE_DATA", "."), "multi30k"))
    options = parser.parse_args()
    folder: Path = options.peers_folder.resolve()
    chosen = options.peers.split(",")
    if unknown := set(chosen) - set(PEERS):
        sys.exit(f"--peers names {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}.")
    _environment(folder, "base")
    _pip(folder, "base", TORCH, "numpy", "sentencepiece")
    for peer in chosen:
        _environment(folder, peer)
        for packages in PEERS[peer]:
            _pip(folder, peer, *packages)
        if peer == "fairseq":
            (_site_packages(folder, peer) / "sitecustomize.py").write_text(SITECUSTOMIZE, encoding="utf-8")
        print(f"{peer}: installed", flush=True)
    command = [python_of(folder, "base"), Path(__file__).with_name("pieces.py"), options.data, folder / "data"]
    subprocess.run([str(part) for part in command], check=True)
    if "fairseq" in chosen:
        _binarize_for_fairseq(folder)


def python_of(folder: Path, peer: str) -> Path:
    return folder / "venv" / peer / "bin" / "python"


def _site_packages(folder: Path, peer: str) -> Path:
    venv = str(folder / "venv" / peer)
    return Path(sysconfig.get_path("purelib", "venv", {"base": venv, "platbase": venv}))


def _environment(folder: Path, peer: str) -> None:
    if not python_of(folder, peer).exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv" / peer], check=True)
    if peer != "base":
        (_site_packages(folder, peer) / "base.pth").write_text(f"{_site_packages(folder, 'base')}\n", encoding="utf-8")


def _pip(folder: Path, peer: str, *packages: str) -> None:
    constraint = folder / "venv" / "constraint.txt"
    constraint.write_text(f"{TORCH}\n", encoding="utf-8")
    command = [str(python_of(folder, peer)), "-m", "pip", "install", "--quiet", "-c", str(constraint), *packages]
    if subprocess.run(command, check=False).returncode:
        sys.exit(f"{peer}: pip could not install {' '.join(packages)}.")


def _binarize_for_fairseq(folder: Path) -> None:
    if (folder / "data" / "fairseq").exists():
        return
    data = str(folder / "data")
    command = [str(python_of(folder, "fairseq").with_name("fairseq-preprocess")), "-s", "en", "-t", "de"]
    command += ["--joined-dictionary", "--destdir", f"{data}/fairseq", "--trainpref", f"{data}/train"]
    command += ["--validpref", f"{data}/val"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
