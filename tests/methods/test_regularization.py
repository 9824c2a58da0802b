"""Names of methods: what they compose, their variants, and what is refused."""

from pathlib import Path

import pytest

from ancl import Method, MethodError, SpecError, make_method
from ancl.extend import CrossEntropy, with_afec, with_ancl
from tests.lab import PLACES, Ewc, Lwf, Mas, Si, program

OUTSIDE = program("""
from ancl import Method
from ancl.extend import Term
from tests.lab import Lwf

def mine(*, lamb: float = 4.0) -> Method:
    return Method("mine", old=Term(Lwf(1.0), lamb))

fixed = Method("fixed")
number = 3

def wrong() -> int:
    return 3
""")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "methods.py"
    path.write_text(OUTSIDE)
    return path


def test_methods_compose_parts() -> None:
    assert make_method("finetune") == Method("finetune")
    joint = make_method("joint", loss_over="own_task")
    assert (joint.data, joint.trains) == ("all", "everything")
    assert joint.task_loss == CrossEntropy("own_task")
    assert make_method("ewc", lamb=3, estimator="sample").old.regularizer == Ewc(estimator="sample")
    assert make_method("mas", norm="squared").old.regularizer == Mas(norm="squared")
    assert make_method("si", damping=0.5).old.regularizer == Si(0.5)
    lwf = make_method("lwf", temperature=3.0, lamb=7)
    assert (lwf.old.regularizer, lwf.old.lamb) == (Lwf(3.0, 1e-5), 7)


@pytest.mark.parametrize(
    ("name", "lamb"), [("ewc", 10_000.0), ("mas", 50.0), ("si", 0.1), ("lwf", 10.0)]
)
def test_the_published_lambda_is_the_default(name, lamb) -> None:
    assert make_method(name).old.lamb == lamb


@pytest.mark.parametrize("name", ["a-lwf", "a_lwf", "lwf+ancl"])
def test_ancl_has_the_methods_own_regularizer(name) -> None:
    method = make_method(name, lamb_a=0.5, temperature=3.0)

    assert method == with_ancl(make_method("lwf", temperature=3.0), 0.5)
    assert method.name == "a-lwf"
    assert method.auxiliary.regularizer == method.old.regularizer == Lwf(3.0, 1e-5)
    assert (method.auxiliary.lamb_a, method.auxiliary.renewed) == (0.5, "task")


@pytest.mark.parametrize("name", ["afec-lwf", "afec_lwf", "lwf+afec"])
def test_afec_has_the_regularizer_of_ewc(name) -> None:
    method = make_method(name, lamb_a=2.0, afec_start="carried")

    assert method == with_afec(make_method("lwf"), 2.0, start="carried")
    assert method.name == "afec-lwf"
    assert isinstance(method.auxiliary.regularizer, Ewc)
    assert (method.auxiliary.renewed, method.auxiliary.start) == ("epoch", "carried")


def test_a_method_has_one_auxiliary_network() -> None:
    made = make_method("a-lwf")

    with pytest.raises(MethodError, match="already has an auxiliary network"):
        with_ancl(made)
    with pytest.raises(MethodError, match="already has an auxiliary network"):
        with_afec(made)


def test_a_mistyped_name_or_setting_is_told_the_nearest() -> None:
    with pytest.raises(MethodError, match=r"no method 'ewcc'. Did you mean 'ewc'\?.*a-NAME"):
        make_method("ewcc")
    with pytest.raises(MethodError, match=r"no method 'a-ewcc'. Did you mean 'a-ewc'\?"):
        make_method("a-ewcc")
    with pytest.raises(MethodError, match="no variant 'anc'"):
        make_method("lwf+anc")
    with pytest.raises(SpecError, match=r"no setting 'temprature'. Did you mean 'temperature'\?"):
        make_method("lwf", temprature=1)
    with pytest.raises(SpecError, match="only a-NAME and afec-NAME"):
        make_method("lwf", lamb_a=1.0)
    with pytest.raises(SpecError, match="lamb is -1"):
        make_method("lwf", lamb=-1)


def test_a_method_of_a_file(file: Path) -> None:
    assert make_method(f"{file}:mine", lamb=2).old.lamb == 2
    assert make_method(f"{file}:fixed") == Method("fixed")
    assert make_method(f"a-{file}:mine", lamb_a=3.0).name == "a-mine"
    assert make_method(f"{file}:mine+afec").name == "afec-mine"


def test_a_method_of_a_module() -> None:
    assert make_method(PLACES["lwf"], lamb=2) == make_method("lwf", lamb=2)
    assert make_method(f"a-{PLACES['lwf']}") == make_method("a-lwf")


def test_a_modules_name_may_begin_like_a_variant(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "a_module_of_methods.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)

    assert make_method("a_module_of_methods:mine").name == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mien", r"no function 'mien'. Did you mean 'mine'\?"),
        ("number", "is of type int. Name a function"),
        ("wrong", "returned int. It must return an ancl.Method"),
    ],
)
def test_what_a_file_lacks_is_told(name, message, file: Path) -> None:
    with pytest.raises(MethodError, match=message):
        make_method(f"{file}:{name}")


def test_a_file_that_is_missing_or_broken_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0")

    with pytest.raises(MethodError, match="There is no file"):
        make_method(f"{tmp_path}/none.py:mine")
    with pytest.raises(MethodError, match="does not load: ZeroDivisionError"):
        make_method(f"{broken}:mine")
    with pytest.raises(MethodError, match="There is no module 'no_such_module'"):
        make_method("no_such_module:mine")


@pytest.mark.parametrize("host", ["finetune", "lwf", "mas", "rwalk", "icarl"])
def test_afecs_fisher_is_of_the_tasks_own_classes_or_of_all_seen(host) -> None:
    assert make_method(f"afec-{host}").auxiliary.regularizer == Ewc(over="own")
    assert make_method(f"afec-{host}", afec_over="own").auxiliary.regularizer.over == "own"
    assert make_method(f"afec-{host}", afec_over="seen").auxiliary.regularizer == Ewc(over="seen")


def test_ewc_as_afecs_host_keeps_both_terms_on_one_scale() -> None:
    for over in ("seen", "own"):
        made = make_method("afec-ewc", over=over, drop_last=True)
        assert made.auxiliary.regularizer == made.old.regularizer == Ewc(over=over, drop_last=True)

    apart = make_method("afec-ewc", afec_over="own", labels="predicted")
    assert apart.old.regularizer == Ewc(labels="predicted")
    assert apart.auxiliary.regularizer == Ewc(labels="predicted", over="own")


@pytest.mark.parametrize(
    ("name", "decay"), [("a-lwf", 5e-4), ("a-lucir", 5e-4), ("afec-lwf", None), ("dmc", None)]
)
def test_only_ancls_auxiliary_network_has_a_weight_decay_of_its_own(name, decay) -> None:
    assert make_method(name).auxiliary_decay == decay
