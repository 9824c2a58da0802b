"""Data: sources of images, streams of tasks, augmentation."""

from ancl.data.augment import (
    AUGMENTATIONS,
    Augment,
    Augmentation,
    augmentation,
    check_augmentation,
    find_augmentation,
)
from ancl.data.batches import Batch, Batches, ReplayStream, bounded_size, even_size
from ancl.data.class_split import class_order, task_sizes
from ancl.data.convert import as_images, as_labels, as_view, read_dataset
from ancl.data.domains import Domain, domains
from ancl.data.download import fetch, import_from
from ancl.data.formats.arrays import arrays_classes, arrays_source
from ancl.data.formats.embedded import digits, fashion_digits, hard_digits
from ancl.data.formats.folders import folder_classes, folder_source
from ancl.data.published import PUBLISHED, Published
from ancl.data.registry import data_root, labelled_part
from ancl.data.samples import (
    Label,
    Normalization,
    Samples,
    as_input,
    canonical,
    fingerprint,
    interleaved,
)
from ancl.data.source import (
    Source,
    channel_statistics,
    check_normalization,
    chosen_normalization,
    from_arrays,
    from_dataset,
    make_source,
    raw_floats,
)
from ancl.data.storage import ImageView
from ancl.data.stream import (
    SCENARIOS,
    Split,
    Stream,
    Task,
    enough_classes,
    make_stream,
    task_domains,
    task_from,
)

__all__ = [
    "AUGMENTATIONS",
    "PUBLISHED",
    "SCENARIOS",
    "Augment",
    "Augmentation",
    "Batch",
    "Batches",
    "Domain",
    "ImageView",
    "Label",
    "Normalization",
    "Published",
    "ReplayStream",
    "Samples",
    "Source",
    "Split",
    "Stream",
    "Task",
    "arrays_classes",
    "arrays_source",
    "as_images",
    "as_input",
    "as_labels",
    "as_view",
    "augmentation",
    "bounded_size",
    "canonical",
    "channel_statistics",
    "check_augmentation",
    "check_normalization",
    "chosen_normalization",
    "class_order",
    "data_root",
    "digits",
    "domains",
    "enough_classes",
    "even_size",
    "fashion_digits",
    "fetch",
    "find_augmentation",
    "fingerprint",
    "folder_classes",
    "folder_source",
    "from_arrays",
    "from_dataset",
    "hard_digits",
    "import_from",
    "interleaved",
    "labelled_part",
    "make_source",
    "make_stream",
    "raw_floats",
    "read_dataset",
    "task_domains",
    "task_from",
    "task_sizes",
]
