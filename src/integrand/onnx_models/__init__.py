"""Networks in the ONNX format: read, converted to torch, and compared with onnxruntime before they are handed out."""

from .conversion import from_onnx
from .converted_model import OnnxModel, OnnxProvenance

__all__ = ["OnnxModel", "OnnxProvenance", "from_onnx"]
