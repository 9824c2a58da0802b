"""``ancl serve``: what is wrong is said before anything is served."""

from pathlib import Path

import pytest

from tests.cli.conftest import Ancl
from tests.serve.conftest import write_model


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none"], "There is no none.onnx"),
        (["colours", "--host", "0.0.0.0"], "lets other machines ask. Give a token"),
        (["colours", "--max-bytes", "much"], "--max-bytes: 'much' is not a size"),
        (["colours", "--reject", "x"], "--reject: 'x' is not a probability"),
        (["colours", "--threads", "0"], "--threads: '0'"),
        (["colours", "--token-file", "nowhere"], "token file nowhere cannot be read"),
        (["colours", "--token-file", "empty"], "empty holds no token"),
        (["colours", "--port", "99999"], "127.0.0.1:99999 cannot be listened on"),
        (["colours", "--host", "no.such.host.invalid", "--no-token"], "cannot be listened on"),
    ],
)
def test_mistakes_are_said_before_anything_is_served(
    ancl: Ancl, tmp_path: Path, words: list[str], said: str
) -> None:
    write_model(tmp_path / "colours.onnx")
    Path("empty").touch()
    ended = ancl("serve", *words)
    assert ended.code == 2
    assert said in ended.err
