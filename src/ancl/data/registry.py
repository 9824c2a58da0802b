"""Data by name: what ``data.source`` may be."""

import inspect
import os
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from ancl.catalogue import Catalogue
from ancl.data.convert import as_labels, as_view
from ancl.data.formats.arrays import arrays_classes, arrays_part, arrays_source
from ancl.data.formats.embedded import digits, fashion_digits, hard_digits
from ancl.data.formats.folders import SKIP_BAD, folder_classes, folder_part, folder_source
from ancl.data.formats.imagenet_folder import NAME as IMAGENET
from ancl.data.formats.imagenet_folder import SIZE, imagenet_folder
from ancl.data.published import PUBLISHED
from ancl.data.resizing import resized
from ancl.data.samples import Label
from ancl.data.source import Source, make_source, resized_source
from ancl.data.storage import ImageView
from ancl.errors import AnclError, ScenarioError, printable
from ancl.outside import Loaded
from ancl.picture import PictureRule, plain_rule

VARIABLES = ("ANCL_DATA", "DATA_DIR")
"""Environment variables that name the data root, the first one set wins."""


def data_root(given: str | Path | None = None) -> Path:
    """The folder given, else ``$ANCL_DATA``, else ``$DATA_DIR``, else ``./data``."""
    named = [given, *(os.environ.get(variable) for variable in VARIABLES)]
    return Path(next((name for name in named if name), "data")).expanduser()


_WANTED = (
    "a function without arguments, or with the argument root (where data is), that returns "
    "ancl.data.from_arrays(…), or the arrays (train_x, train_y, test_x, test_y)"
)


class KnownSource(NamedTuple):
    """How to read a source below a data root, and what is known of it before it is read.

    The number of classes is None where it is known only after reading.
    """

    read: Callable[[Path], Source]
    classes: int | None
    explanation: str
    images: int | None = None

    def load(self, root: str | Path | None = None) -> Source:
        """Read it; ``root`` is where data is, see ``data_root``."""
        return self.read(data_root(root))


SOURCES: dict[str, KnownSource] = {
    "digits": KnownSource(
        lambda root: digits(), 10, "1,797 handwritten digits of 8x8 pixels, embedded", 1_797
    ),
    "hard-digits": KnownSource(
        lambda root: hard_digits(), 10, "the same, shifted and noisy, 14x14 pixels", 1_797
    ),
    "fashion-digits": KnownSource(
        lambda root: fashion_digits(),
        20,
        "10 kinds of garments and 10 digits, 14x14 pixels, embedded",
        4_797,
    ),
    IMAGENET: KnownSource(
        imagenet_folder, None, "your own ImageNet, decoded as it is read, 224x224 pixels"
    ),
    **{
        name: KnownSource(data.load, data.classes, data.explanation, sum(data.images))
        for name, data in PUBLISHED.items()
    },
}
_CATALOGUE = Catalogue(
    "data source",
    SOURCES,
    _WANTED,
    ScenarioError,
    ("folder:PATH", "folder:PATH@32", "arrays:FILE.npz", "arrays:FOLDER"),
)
FORMS = _CATALOGUE.own_forms
"""How to name your own data."""


def known_source(name: str) -> KnownSource:
    """The entry of a name, or of your own data; see ``FORMS``.

    Raises:
        ScenarioError: There is none of that name.
    """
    kind, colon, rest = name.partition(":")
    if colon and kind == "folder":
        return _folder(rest)
    if colon and kind == "arrays":
        file = Path(rest).expanduser()
        return KnownSource(lambda root: arrays_source(file), arrays_classes(file), "your arrays")
    known = name in SOURCES or names_code(name)
    if not known and Path(name).expanduser().is_dir():
        raise ScenarioError(
            f"There is no data source {name!r}, but a folder of that name. Write "
            f"folder:{name}, or folder:{name}@32 to resize its images to 32x32 pixels."
        )
    source = _CATALOGUE.find(name)
    return _code(source) if isinstance(source, Loaded) else source


def names_code(name: str) -> bool:
    """Whether the name of a source stands for a user's function."""
    return _CATALOGUE.names_code(name)


def load_source(
    name: str,
    root: Path | None = None,
    size: int | None = None,
    rule: PictureRule | None = None,
    short_side: int | None = None,
) -> Source:
    """The images of a name.

    Args:
        name: See ``known_source``.
        root: Where data is, see ``data_root``.
        size: Height and width that they are resized to.
        rule: How images become those of one form; see ``plain_rule`` if left out.
        short_side: See ``check_short_side``.

    Raises:
        ScenarioError: They cannot be read, or the name gives a size, too.
    """
    check_size(name, size)
    check_short_side(name, short_side, size)
    rule = rule or plain_rule(size)
    kind, _, rest = name.partition(":")
    if kind == "folder":
        path, named, skip = _path_and_size(rest)
        return folder_source(path, size or named, skip_bad=skip, rule=rule)
    if name == IMAGENET:
        return imagenet_folder(data_root(root), size or SIZE, short_side)
    return resized_source(known_source(name).load(root), size, rule)


def check_short_side(name: str, short_side: int | None, size: int | None) -> None:
    """Refuse a shorter side where no middle is cut out, or below the size of what is cut out.

    Args:
        name: Of the images.
        short_side: What the shorter side of a file is resized to before the middle is cut out.
        size: Height and width of images.

    Raises:
        ScenarioError: It is not possible.
    """
    if short_side is None:
        return
    if name != IMAGENET:
        raise ScenarioError(
            f"data.short_side is for {IMAGENET}, and the images are {printable(name, 200)}. Leave "
            f"it out; data.resize=crop cuts the middle out of other images."
        )
    if short_side < (size or SIZE):
        raise ScenarioError(
            f"data.short_side is {short_side}, and images have {size or SIZE}x{size or SIZE} "
            f"pixels. Give at least {size or SIZE}."
        )


def check_size(name: str, size: int | None) -> None:
    """Refuse two sizes, which would be reached in two ways.

    Raises:
        ScenarioError: The name of a folder gives a size, and so does ``data.size``.
    """
    given = named_size(name)
    if size is not None and given is not None:
        raise ScenarioError(
            f"{printable(name, 200)} asks for images of {given}x{given} pixels, and data.size, or "
            f"the learner, for {size}x{size}. Write the folder without @{given}; for a new learner "
            f"or a run, give one of the two."
        )


def named_size(name: str) -> int | None:
    """The height and width that a name gives its images, as folder:PATH@32 does."""
    kind, _, rest = name.partition(":")
    return _path_and_size(rest)[1] if kind == "folder" else None


def labelled_part(
    name: str,
    part: str,
    root: str | Path | None = None,
    shape: Sequence[int] | None = None,
    say: Callable[[str], None] = warnings.warn,
    *,
    size: int | None = None,
    rule: PictureRule | None = None,
) -> tuple[ImageView, list[Label]]:
    """The images of one part of a source, each with its label, in no certain order.

    Unlike ``load_source`` it takes a single class too, and cuts nothing off for a test.

    Args:
        name: See ``known_source``.
        part: ``train`` or ``test``. A folder or a file without parts gives all its images.
        root: Where data is; see ``data_root``.
        shape: The shape that image files are brought to, channels first, where the name gives
            no size: they are resized, and grey ones get three channels.
        say: Receives which files were left out, where ``folder:PATH+skip-bad`` allows it, and
            other notes.
        size: Height and width that all images are resized to, as ``data.size`` does.
        rule: How images become those of one form; see ``plain_rule`` if left out.
    """
    check_size(name, size)
    rule = rule or plain_rule(size)
    kind, _, rest = name.partition(":")
    if kind == "folder":
        path, named, skip = _path_and_size(rest)
        wanted: int | tuple[int, int] | None = size or named
        if wanted is None and shape is not None and len(shape) == 3:
            wanted = (shape[1], shape[2])
        colour = bool(shape and shape[0] == 3)
        x, y, files = folder_part(
            path, part, wanted, colour=colour, skip_bad=skip, rule=rule, say=say
        )
        view = as_view(x)
        view.storage.names = [str(path / file) for file in files]
        return view, as_labels(y)
    if kind == "arrays":
        arrays = arrays_part(Path(rest).expanduser(), part)
        return resized(as_view(arrays[0]), size, rule), as_labels(arrays[1])
    source = load_source(name, None if root is None else Path(root), size, rule)
    samples = source.test if part == "test" else source.train
    return samples.x, [source.classes[number] for number in samples.y.tolist()]


def _path_and_size(text: str) -> tuple[Path, int | None, bool]:
    """A folder of images, perhaps with a size after an ``@``; and whether bad ones are left out."""
    plain = text.removesuffix(SKIP_BAD)
    sized = re.fullmatch(r"(.+)@(\d+)", plain)
    path = Path(sized[1] if sized else plain).expanduser()
    size = int(sized[2][-9:]) if sized else None
    if sized and not 0 < len(sized[2].lstrip("0")) < 6:
        raise ScenarioError(
            f"folder:{printable(text, 200)} asks for images of no possible size. Write "
            "folder:PATH@32."
        )
    return path, size, plain != text


def _folder(text: str) -> KnownSource:
    path, size, skip = _path_and_size(text)
    read = partial(folder_source, path, size, skip_bad=skip)
    return KnownSource(lambda root: read(), folder_classes(path), "your images")


def _code(code: Loaded) -> KnownSource:
    """What a user's function reads.

    Stage keys hold the fingerprint of the images, so the source of the function is not in them.
    """
    try:
        parameters = inspect.signature(code.value).parameters.values()
    except ValueError:  # no signature at all
        parameters = {}.values()
    needed = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    if set(needed) - {"root"}:
        raise ScenarioError(f"{code.name} takes {', '.join(needed)}. Name {_WANTED}.")
    if any(parameter.name == "root" for parameter in parameters):
        return KnownSource(lambda root: _read_code(_Call(code, root)), None, "your own code")
    call = _Call(code, None)
    return KnownSource(
        lambda root: _read_code(call), len(_read_code(call).classes), "your own code"
    )


class _Call:
    """A call of a user's function; equal calls read the same."""

    def __init__(self, code: Loaded, root: Path | None) -> None:
        self.code, self.root = code, root
        self._key = (code.name, code.sources.digest, root and str(root.resolve()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __call__(self) -> Any:
        return self.code.value(**({} if self.root is None else {"root": self.root}))


@lru_cache(maxsize=1)
def _read_code(call: _Call) -> Source:
    """Read once: the number of classes is asked for before the images are."""
    name = call.code.name
    try:
        result = call()
    except AnclError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise ScenarioError(f"{name} stopped with {type(error).__name__}: {error}.") from error
    if isinstance(result, Source):
        return _checked(result)
    if not isinstance(result, tuple | list) or len(result) not in (2, 4):
        size = f" of {len(result)}" if isinstance(result, tuple | list) else ""
        raise ScenarioError(f"{name} returned a {type(result).__name__}{size}. Name {_WANTED}.")
    return make_source(call.code.attribute, *result)


def _checked(source: Source) -> Source:
    """The same images in canonical order with their own fingerprint, which stage keys rely on."""
    names, train, test = source.classes, source.train, source.test
    rebuilt = make_source(
        source.name,
        train.x,
        [names[number] for number in train.y.tolist()],
        test.x,
        [names[number] for number in test.y.tolist()],
        classes=names,
        normalization=source.normalization,
    )
    return replace(rebuilt, notes=tuple(dict.fromkeys([*source.notes, *rebuilt.notes])))
