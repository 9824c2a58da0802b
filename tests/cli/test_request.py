"""What flags become before anything is resolved."""

from ancl.cli.request import quick_settings

from ancl.methods.registry import MethodRef


def test_a_quick_look_leaves_off_what_is_off() -> None:
    ref = MethodRef("lucir")
    off = [n for n, p in ref.settings.items() if n.endswith("epochs") and p.default == 0]

    assert off
    assert not set(off) & set(quick_settings(ref))
