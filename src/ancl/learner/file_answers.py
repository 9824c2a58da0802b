"""A learner's answers for image files."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ancl.data import Label
from ancl.data.formats.archives import FolderTree
from ancl.data.pictures import try_pictures
from ancl.errors import ScenarioError
from ancl.learner.answers import check_reject
from ancl.learner.learner import Learner
from ancl.picture import START, Pixels, begins_as_picture, is_picture

_BYTES_AT_ONCE = 2**21
_SHOWN = 5


class Answer(NamedTuple):
    """What a learner answers about a file.

    Args:
        image: The file.
        labels: The most probable labels with their probabilities, best first; none where the file
            cannot be read.
        problem: Why it cannot be read.
        rejected: Whether the best label is less probable than what was asked for.
    """

    image: Path
    labels: list[tuple[Label, float]]
    problem: str = ""
    rejected: bool = False


def predict_files(
    learner: Learner,
    paths: Sequence[Path],
    k: int = 1,
    task: int | None = None,
    reject: float | None = None,
) -> list[Answer]:
    """The most probable labels of image files, and of all those below folders.

    A file that cannot be read costs no other file its answer. Files are read while those before
    them are answered, and never more at a time than a bounded number of pixels.

    Args:
        learner: Who answers.
        paths: Files and folders; an image of another size is resized.
        k: The number of labels for each.
        task: The task whose classes are possible, from 0; all if left out.
        reject: An answer is marked as rejected where its best label is less probable than this.

    Raises:
        ScenarioError: No file can be read, or a folder holds no image.
    """
    check_reject(reject)
    if task is not None and not 0 <= task < len(learner.tasks):
        raise ScenarioError(
            f"There is no task {task + 1}. The learner knows the tasks 1 to {len(learner.tasks)}."
        )
    answers: list[Answer] = []
    for files, images in _read_ahead(learner, list(image_files(paths))):
        good = [image for image in images if not isinstance(image, str)]
        rows = iter(learner.top_k(np.stack(good), k, task) if good else [])
        for file, image in zip(files, images, strict=True):
            if isinstance(image, str):
                answers.append(Answer(file, [], image))
            else:
                labels = next(rows)
                answers.append(Answer(file, labels, "", labels[0][1] < (reject or 0.0)))
    problems = [answer.problem for answer in answers if answer.problem]
    if len(problems) == len(answers):
        more = f" And {len(problems) - _SHOWN} more." if len(problems) > _SHOWN else ""
        raise ScenarioError("\n".join(problems[:_SHOWN]) + more)
    return answers


def _read_ahead(
    learner: Learner, files: Sequence[Path]
) -> Iterator[tuple[Sequence[Path], list[Pixels | str]]]:
    """Files and their pixels, or what is wrong with them; the next ones are read meanwhile."""
    form = learner._form
    if form is None or form.picture is None:
        raise ScenarioError("This learner has not learned from images, so it reads no image files.")
    shape, rule, say = form.picture, form.rule, _once(learner._say)
    count = max(1, _BYTES_AT_ONCE // int(np.prod(shape)))
    parts = [files[start : start + count] for start in range(0, len(files), count)]
    with ThreadPoolExecutor(1) as reader:

        def begin(part: Sequence[Path]) -> Future[list[Pixels | str]]:
            return reader.submit(try_pictures, part, shape, rule=rule, say=say)

        coming = begin(parts[0])
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            images = coming.result()
            if following is not None:
                coming = begin(following)
            yield part, images


def _once(say: Callable[[str], None]) -> Callable[[str], None]:
    """Says the first message alone: that of many parts would be the same."""
    messages: list[str] = []

    def first(message: str) -> None:
        if not messages:
            messages.append(message)
            say(message)

    return first


def image_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Files as they are, and all pictures below folders.

    Raises:
        ScenarioError: A folder holds none.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        tree = FolderTree(path)
        below = [
            path / name
            for name in tree.marks()
            if is_picture(name) or begins_as_picture(tree.start(name, START))
        ]
        if not below:
            raise ScenarioError(f"There are no images below {path} (.png, .jpg, .webp, …).")
        yield from below
