"""Image classifiers with what is needed to use them: preprocessing, class names, and where they are from.

>>> network = load("efficientnet-lite0")
>>> network.label(network.find("tabby cat"))
'tabby'
"""

from .images.class_names import imagenet
from .images.model import DEFAULT, Network, load, network_of
from .images.preprocess import Preprocess

__all__ = ["DEFAULT", "Network", "Preprocess", "imagenet", "load", "network_of"]
