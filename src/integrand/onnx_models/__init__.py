"""Networks in the ONNX format: read, converted to torch, and compared with onnxruntime before they are handed out."""

from .converted_model import OnnxModel, OnnxProvenance, from_onnx

__all__ = ["OnnxModel", "OnnxProvenance", "from_onnx"]
