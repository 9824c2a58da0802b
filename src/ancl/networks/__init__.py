"""Backbones, the network around them, and how to make it again."""

from ancl.networks.adapters import adapt, merge_adapters
from ancl.networks.architecture import Architecture, architecture, without_head
from ancl.networks.backbones import Mlp, ResNet
from ancl.networks.efficientnet_lite0 import EfficientNetLite0, weights_notice
from ancl.networks.growth import Growth
from ancl.networks.makers import (
    NAMES,
    NETWORKS,
    later_network_options,
    network_maker,
    network_options,
)
from ancl.networks.network import Backbone, Network, as_backbone, frozen, train_mode
from ancl.networks.pretrainable import PretrainableBackbone

__all__ = [
    "NAMES",
    "NETWORKS",
    "Architecture",
    "Backbone",
    "EfficientNetLite0",
    "Growth",
    "Mlp",
    "Network",
    "PretrainableBackbone",
    "ResNet",
    "adapt",
    "architecture",
    "as_backbone",
    "frozen",
    "later_network_options",
    "merge_adapters",
    "network_maker",
    "network_options",
    "train_mode",
    "weights_notice",
    "without_head",
]
