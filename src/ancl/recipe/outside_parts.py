"""What from outside the package decides a run: your code, files of weights and images, by hash.

A spec names them, and does not change where they do. Published data sets and ours are not among
them: their bytes are known.
"""

from collections.abc import Mapping
from pathlib import Path

from ancl.data.augment import augmentation_code
from ancl.data.registry import SOURCES, load_source
from ancl.hashing import PROCESS, UnstorableError, digest, known_digest
from ancl.methods.registry import MethodRef
from ancl.networks.makers import Maker, network_maker
from ancl.outside import Loaded
from ancl.recipe.recipe import Recipe, RunSpec
from ancl.training.optimizers import optimizer_code

Digests = Mapping[str, str]
"""The hash of each part from outside, by its setting: ``method``, ``data.source`` and so on."""


UNKNOWN = "known in one process alone:"
"""What the hash of code begins with that may depend on more than its text."""


def part_digests(
    method: Loaded | None,
    augment: Loaded | None,
    network: Maker | None,
    weights: str | None,
    images: str | None,
    optimizers: Mapping[str, Loaded | None],
) -> dict[str, str]:
    """The hashes of what is given; of code that is not wholly known, one of this process alone."""
    codes = {"method": method, "network": network and network.code, "data.augment": augment}
    codes |= optimizers
    digests = {setting: _code_digest(code) for setting, code in codes.items() if code}
    if network and network.library:
        digests["network"] = network.library.version
    others = {"network.weights": weights, "data.source": images}
    return digests | {setting: value for setting, value in others.items() if value}


def _code_digest(code: Loaded) -> str:
    try:
        return digest([code.attribute, known_digest(code.name, code.sources)])
    except UnstorableError:
        return f"{UNKNOWN} {PROCESS}"


def own_images(source: str) -> bool:
    """Whether a source is a user's own, whose images may change."""
    return source not in SOURCES


def outside_digests(spec: RunSpec, root: Path | None = None) -> dict[str, str]:
    """The hashes of what decides a run from outside, as it is now.

    Args:
        spec: The run.
        root: Where data is; see ``ancl.data.data_root``.

    Raises:
        AnclError: A file is not there any more, or cannot be read.
    """
    network, source = network_maker(str(spec.network["name"])), spec.data.source
    weights = spec.network.get("weights") if network.library else None
    file = network.library.located(str(weights)) if network.library and weights else None
    return part_digests(
        MethodRef(spec.method).code,
        augmentation_code(spec.data.augment),
        network,
        file and file.digest,
        _images_digest(spec, root) if own_images(source) else None,
        own_optimizers(spec),
    )


def own_optimizers(spec: Recipe) -> dict[str, Loaded | None]:
    """The code of the optimizers that a spec names, by setting; nothing for those of torch."""
    return {
        "training.optimizer": optimizer_code(spec.training.optimizer),
        "auxiliary.optimizer": optimizer_code(spec.auxiliary.optimizer),
    }


def _images_digest(spec: RunSpec, root: Path | None) -> str:
    data = spec.data
    form = (data.size, data.pictures, data.short_side)
    return load_source(data.source, root, *form).fingerprint


def part_name(spec: RunSpec, setting: str) -> str:
    """What a setting names, for a reader."""
    named = {
        "method": spec.method,
        "network": spec.network["name"],
        "network.weights": spec.network.get("weights"),
        "data.augment": spec.data.augment,
        "data.source": spec.data.source,
        "training.optimizer": spec.training.optimizer,
        "auxiliary.optimizer": spec.auxiliary.optimizer,
    }
    return f"{setting} ({named.get(setting)})"
