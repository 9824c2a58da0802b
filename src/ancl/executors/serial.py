"""One stage after the other, in this process."""

from functools import partial

from ancl.errors import StoreError
from ancl.executors.compute import Workshop, reason, retell
from ancl.executors.graph import Graph, Observer, Schedule
from ancl.store.store import Store


class Serial:
    """Computes stages here, in the order of the plans."""

    def run(self, graph: Graph, store: Store, observer: Observer) -> dict[str, str]:
        """See :class:`~ancl.executors.Executor`."""
        schedule = Schedule(graph.nodes, graph.todo(store))
        workshop = Workshop(graph.root)
        while (key := schedule.take()) is not None:
            node = graph.nodes[key]
            observer.begins(node)
            try:
                tell = partial(retell, observer, node)
                entry = workshop.compute(node.spec, key, store, tell, node.lambs)
            except StoreError:
                raise
            except Exception as error:  # a method from outside may raise anything
                schedule.fail(key, reason(error))
                observer.fails(node, schedule.failures[key])
            else:
                schedule.done(key)
                observer.ends(node, entry.meta["seconds"])
        return schedule.failures
