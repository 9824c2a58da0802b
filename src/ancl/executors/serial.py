"""One stage after the other, in this process."""

from functools import partial

from ancl.errors import StoreError
from ancl.executors.compute import Workshop, pass_on, reason
from ancl.executors.graph import Graph, Schedule
from ancl.stages.events import Events
from ancl.store.store import Store


class Serial:
    """Computes stages here, in the order of the plans."""

    def run(self, graph: Graph, store: Store, events: Events) -> dict[str, str]:
        """See :class:`~ancl.executors.Executor`."""
        schedule = Schedule(graph.nodes, graph.todo(store))
        workshop = Workshop(graph.root, graph.read)
        while (key := schedule.take()) is not None:
            node = graph.nodes[key]
            events.stage_begins(node.stage)
            try:
                tell = partial(pass_on, node=node, events=events)
                entry = workshop.compute(node.spec, key, store, tell, node.lambs)
            except StoreError:
                raise
            except Exception as error:  # a method from outside may raise anything
                schedule.fail(key, reason(error))
                events.stage_fails(node.stage, schedule.failures[key])
            else:
                schedule.done(key)
                events.stage_ends(node.stage, found=False, seconds=entry.meta["seconds"])
        return schedule.failures
