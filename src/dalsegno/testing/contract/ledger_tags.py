"""Tags that a running execution changes: with its step or not at all, and lists find it by them from then on."""

from __future__ import annotations

from dalsegno.model.effect import ReplaceTags, WakeMachine
from dalsegno.model.transition import AlreadyApplied, Stale
from dalsegno.testing.contract.archive_search import found
from dalsegno.testing.contract.build import RUN, command, event, finish, start, step
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.scripts import new_script, resume_lease, resume_token, save
from dalsegno.testing.contract.stack import ContractStack

ENV, INTAKE, REVIEW = ("env", "prod"), ("stage", "intake"), ("stage", "review")
TO_REVIEW = ReplaceTags((ENV, REVIEW), (INTAKE,), (REVIEW,))


async def begin(stack: ContractStack, *others: str) -> None:
    """Executions of scripts that are in the first stage."""
    for number, name in enumerate((RUN, *others)):
        run = new_script(name, tags=(ENV, INTAKE), created_at=float(number))
        await stack.apply(start(run, resume_token(name)))


async def tags_of(stack: ContractStack, execution: str = RUN) -> tuple[tuple[str, str], ...]:
    view = await stack.archive.execution(execution)
    assert view is not None
    return view.tags


class LedgerTags(Topic):
    guarantees = frozenset(("L1", "L2", "L4", "A3"))
    needs = frozenset(("commit", "leases", "archive", "scripts", "sweep"))

    async def test_a3_running_execution_is_found_by_tags_it_has_set(self, stack: ContractStack) -> None:
        await begin(stack, "other")
        changed = event("TagsChanged", "", data=b'{"tags":{"stage":"review"}}')
        await stack.apply(step(await resume_lease(stack, 0), TO_REVIEW, save(0), events=(changed,)))

        assert await tags_of(stack) == (ENV, REVIEW)
        assert await found(stack, tags=(REVIEW,)) == [RUN]
        assert await found(stack, tags=(INTAKE,)) == ["other"]
        assert await found(stack, tags=(ENV,)) == ["other", RUN]
        assert await found(stack, tags=(ENV, REVIEW)) == [RUN]
        assert await found(stack, text="review") == [RUN]
        assert await found(stack, text="intake") == ["other"]
        assert (await stack.execution()).tags == (ENV, REVIEW)
        assert (await stack.kinds())[-1] == "TagsChanged"

    async def test_a3_tags_set_in_the_last_step_are_those_of_the_ended(self, stack: ContractStack) -> None:
        await begin(stack)
        await stack.apply(step(await resume_lease(stack, 0), TO_REVIEW, save(0), finish()))
        while await stack.ledger.sweep():
            pass

        assert await tags_of(stack) == (ENV, REVIEW)
        assert await found(stack, tags=(REVIEW,), states=("COMPLETED",)) == [RUN]
        assert await found(stack, tags=(INTAKE,)) == []

    async def test_a3_all_tags_can_go_and_the_first_can_come(self, stack: ContractStack) -> None:
        await begin(stack)
        await stack.apply(step(await resume_lease(stack, 0), ReplaceTags((), (ENV, INTAKE), ()), save(0)))
        assert await tags_of(stack) == ()
        assert await found(stack, tags=(ENV,)) == []

        await stack.apply(command(RUN, WakeMachine()))
        await stack.apply(step(await resume_lease(stack, 1), ReplaceTags((REVIEW,), (), (REVIEW,)), save(1)))
        assert await found(stack, tags=(REVIEW,)) == [RUN]

    async def test_l1_same_step_again_changes_no_tags(self, stack: ContractStack) -> None:
        await begin(stack)
        first = step(await resume_lease(stack, 0), TO_REVIEW, save(0))
        await stack.apply(first, command(RUN, WakeMachine()))
        back = ReplaceTags((ENV, INTAKE), (REVIEW,), (INTAKE,))
        await stack.apply(step(await resume_lease(stack, 1), back, save(1)))

        assert await stack.commit(first) == [AlreadyApplied()]
        assert await tags_of(stack) == (ENV, INTAKE)
        assert await found(stack, tags=(REVIEW,)) == []

    async def test_l4_refused_step_changes_no_tags(self, stack: ContractStack) -> None:
        await begin(stack)
        late = await resume_lease(stack, 0)
        await stack.ledger.release("w1", [late])
        again = await resume_lease(stack, 0)

        assert await stack.commit(step(late, TO_REVIEW, save(0))) == [Stale("fence")]
        assert await tags_of(stack) == (ENV, INTAKE)
        assert await found(stack, tags=(REVIEW,)) == []
        await stack.apply(step(again, TO_REVIEW, save(0)))
        assert await found(stack, tags=(REVIEW,)) == [RUN]

    async def test_l2_batch_of_executions_each_with_its_own_tags(self, stack: ContractStack) -> None:
        names = [f"own-{number}" for number in range(5)]
        await begin(stack, *names)
        leases = {lease.execution: lease for lease in await stack.claim(100)}
        steps = []
        for name in names:
            own = ("owner", name)
            steps.append(step(leases[name], ReplaceTags((ENV, own), (INTAKE,), (own,)), save(0)))
        await stack.apply(*steps)

        for name in names:
            assert await found(stack, tags=(("owner", name),)) == [name]
        assert await found(stack, tags=(INTAKE,)) == [RUN]

    async def test_a3_removed_executions_leave_no_row_of_a_tag_they_set(self, stack: ContractStack) -> None:
        await begin(stack)
        await stack.apply(step(await resume_lease(stack, 0), TO_REVIEW, save(0), finish()))
        while await stack.ledger.sweep():
            pass
        assert await stack.archive.remove([RUN]) == [RUN]
        assert await found(stack, tags=(REVIEW,)) == []
        assert await found(stack, text="review") == []
