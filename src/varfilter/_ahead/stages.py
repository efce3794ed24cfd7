"""Which equations of a step are computed when: for all steps at once, or in a loop."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from varfilter._ahead.equations import array_type, num_bytes, num_products, variables_of

# Cheaper to compute again in each step than to be stored for all of them, unless the result is
# smaller; and the same of what is computed element by element, if the result is larger.
CHEAP = frozenset(
    {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "convert_element_type", "copy"}
    | {"stop_gradient"}
)
ELEMENTWISE = frozenset(
    {"add", "sub", "mul", "div", "neg", "sign", "abs", "max", "min", "select_n"}
    | {"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge"}
)
# These look at their inputs before they compute. For many steps at once a `cond` would compute
# both of its sides, and a `while` go on until the last step is done: they stay in the loop.
CHOICES = frozenset({"cond", "while"})


@dataclass(frozen=True)
class Loop:
    """The leaves of the carry that wait for themselves, and the equations they wait for.

    `kept` is what later stages need of each step. What the leaves in `derived` were before each
    step is not among it, for it follows from what is.
    """

    leaves: list[int]
    equations: list[JaxprEqn]
    fixed: list[Var]
    scanned: list[Var]
    kept: list[Var]
    derived: list[int]


@dataclass(frozen=True)
class Stage:
    """Equations for all steps at once; then leaves that are known by them; then a loop."""

    ahead: list[JaxprEqn]
    shifted: list[int]
    loop: Loop | None


class StagePlan:
    """The stages in which the loop of a traced step is computed.

    The arguments of `jaxpr` are `num_consts` constants, `num_carry` leaves of the carry, and the
    scanned inputs; its results are the carry and what is kept of the step.
    """

    def __init__(self, jaxpr: Jaxpr, num_consts: int, num_carry: int):
        self.jaxpr = jaxpr
        self.consts = jaxpr.invars[:num_consts]
        self.carry = jaxpr.invars[num_consts : num_consts + num_carry]
        self.xs = jaxpr.invars[num_consts + num_carry :]
        self.after = jaxpr.outvars[:num_carry]
        self.ys = jaxpr.outvars[num_carry:]
        self._source = {var: i for i, eqn in enumerate(jaxpr.eqns) for var in eqn.outvars}
        computed = [variable for equation in jaxpr.eqns for variable in equation.outvars]
        self._order = {variable: i for i, variable in enumerate([*jaxpr.invars, *computed])}
        self._choice = 1 << num_carry
        self.constant, self.held = self._unmoved()
        self.fixed = self._fixed()
        self._needs = self._needs_of_carry()
        self._cheap = self._cheap_variables()
        self.stages = list(self._stages())

    def in_order(self, variables: set[Var]) -> list[Var]:
        """The variables in the order in which the step computes them."""
        return sorted(variables, key=self._order.__getitem__)

    def _unmoved(self) -> tuple[list[int], dict[int, tuple[Var, Var | Literal]]]:
        """Leaves that never change, and leaves that stay as they are where a mask is False.

        The first are as good as constants. The others are (mask, value): unless their value
        depends on them, they need no loop, as padded steps are no reason for one.
        """
        constant: list[int] = []
        held: dict[int, tuple[Var, Var | Literal]] = {}
        for leaf, (before, after) in enumerate(zip(self.carry, self.after, strict=True)):
            if after is before or 0 in array_type(before).shape:
                constant.append(leaf)
            elif isinstance(after, Var) and after in self._source:
                equation = self.jaxpr.eqns[self._source[after]]
                if equation.primitive.name != "select_n" or equation.invars[1] is not before:
                    continue
                mask, _, *values = equation.invars
                if values == [before]:
                    constant.append(leaf)
                elif len(values) == 1 and isinstance(mask, Var) and not array_type(mask).shape:
                    held[leaf] = mask, values[0]
        return constant, held

    def _fixed(self) -> set[Var]:
        """The variables that are the same at every step."""
        fixed = {*self.consts, *(self.carry[i] for i in self.constant)}
        for equation in self.jaxpr.eqns:
            if all(variable in fixed for variable in variables_of(equation.invars)):
                fixed.update(equation.outvars)
        return fixed

    def _needs_of_carry(self) -> dict[Var, int]:
        """The leaves of the carry that each variable depends on, as the bits of an integer.

        One bit more says that it depends on a choice, which stays in the loop.
        """
        needs = dict.fromkeys(self.jaxpr.invars, 0)
        needs |= {v: 1 << i for i, v in enumerate(self.carry) if i not in self.constant}
        for equation in self.jaxpr.eqns:
            bits = 0
            for variable in variables_of(equation.invars):
                bits |= needs[variable]
            if _is_choice(equation, self.fixed):
                bits |= self._choice
            needs.update((variable, bits) for variable in equation.outvars)
        return needs

    def _stages(self) -> Iterable[Stage]:
        known = {*self.consts, *self.xs, *(self.carry[i] for i in self.constant)}
        chosen = [v for v in variables_of(self.ys) if self._needs[v] & self._choice]
        levels = self._levels()
        if chosen and not (levels and levels[-1][1]):
            levels.append(([], []))  # a loop without a carry, for the choices alone

        for number, (shifted, looped) in enumerate(levels):
            targets = [self.after[leaf] for leaf in looped]
            if number == len(levels) - 1:
                targets += chosen
            later = [leaf for level in levels[number + 1 :] for part in level for leaf in part]
            wanted = [*self.ys, *(atom for leaf in later for atom in self.sources(leaf))]
            targets += self._tails(looped, targets, wanted, known) if targets else []
            body, outside = self._body(looped, targets, known)
            ready = [*outside, *(atom for leaf in shifted for atom in self.sources(leaf))]
            ahead, _ = self._needed(ready, known.__contains__)
            known.update(variable for equation in ahead for variable in equation.outvars)
            known.update(self.carry[leaf] for leaf in shifted)
            loop = None
            if targets:
                kept = self._kept(looped, body, wanted, known)
                known.update(kept)
                derived = [leaf for leaf in looped if self._is_derived(leaf, kept, known)]
                kept = [v for v in kept if v not in {self.carry[leaf] for leaf in derived}]
                inputs = self.in_order(outside)
                fixed = [variable for variable in inputs if variable in self.fixed]
                scanned = [variable for variable in inputs if variable not in self.fixed]
                loop = Loop(looped, body, fixed, scanned, kept, derived)
            yield Stage(ahead, shifted, loop)
        ahead, _ = self._needed(self.ys, known.__contains__)
        yield Stage(ahead, [], None)

    def _body(
        self, looped: list[int], targets: list[Var | Literal], known: set[Var]
    ) -> tuple[list[JaxprEqn], set[Var]]:
        """The equations that a loop over these leaves must hold, and what they need from outside.

        They are those on the way from the leaves to `targets`, and the cheap ones beside it.
        """
        own, inside = self._own(looped)

        def is_given(variable: Var) -> bool:
            waits = self._needs[variable] & inside and variable not in known
            return variable in own or not (waits or self._is_cheap(variable))

        body, used = self._needed(targets, is_given)
        return body, used - own

    def _kept(
        self,
        looped: list[int],
        body: list[JaxprEqn],
        wanted: list[Var | Literal],
        known: set[Var],
    ) -> list[Var]:
        """What a loop finds on its way that leads to what is `wanted` later."""
        own, inside = self._own(looped)
        outputs = {variable for equation in body for variable in equation.outvars}
        found = own | {variable for variable in outputs if self._needs[variable] & inside}

        def is_given(variable: Var) -> bool:
            return variable in known or (variable in found and not self._is_cheap(variable))

        _, used = self._needed(wanted, is_given)
        return self.in_order(used & found)

    def _tails(
        self,
        looped: list[int],
        targets: list[Var | Literal],
        wanted: list[Var | Literal],
        known: set[Var],
    ) -> list[Var]:
        """Results without a product on their way that had better be computed in the loop.

        A score, say: a number, where the loop would have to keep all that it is a sum of.
        """
        body, _ = self._body(looped, targets, known)
        own, inside = self._own(looped)
        found = own | {variable for equation in body for variable in equation.outvars}
        tails = []
        for result in variables_of(self.ys):
            if result in found or not self._needs[result] & inside:
                continue
            way, used = self._needed([result], lambda v: v in known or v in found)
            waits = any(variable in self.carry for variable in used - found - known)
            names = {equation.primitive.name for equation in way}
            if not waits and not names & (CHOICES | {"scan"}) and not num_products(way):
                tails.append(result)
        kept = self._kept(looped, body, wanted, known)
        with_tails, _ = self._body(looped, [*targets, *tails], known)
        fewer = self._kept(looped, with_tails, wanted, known)
        return tails if (len(fewer), _size(fewer)) < (len(kept), _size(kept)) else []

    def _is_derived(self, leaf: int, kept: list[Var], known: set[Var]) -> bool:
        """Whether the leaf before each step is wanted, and follows from what is kept of it."""
        *masks, value = self.sources(leaf)
        return self.carry[leaf] in kept and value in kept and all(m in known for m in masks)

    def _own(self, looped: list[int]) -> tuple[set[Var], int]:
        """The variables of a loop's own leaves, and the bits of what has to wait for them."""
        inside = self._choice
        for leaf in looped:
            inside |= 1 << leaf
        return {self.carry[leaf] for leaf in looped}, inside

    def _levels(self) -> list[tuple[list[int], list[int]]]:
        """Order the leaves that change: after each level, all that the next depends on is known.

        A level is (leaves that do not depend on themselves, leaves that do). Each comes as late as
        it may, so that there are few loops.
        """
        moving = [i for i in range(len(self.carry)) if i not in self.constant]
        reach = {i: self._needs_of(self.after[i]) for i in moving}
        for leaf, (mask, value) in self.held.items():
            reach[leaf] = self._needs_of(mask) | self._needs_of(value)
        loops = {i for i in moving if reach[i] & self._choice}
        for middle in moving:
            for i in moving:
                if reach[i] >> middle & 1:
                    reach[i] |= reach[middle]
        loops |= {i for i in moving if reach[i] >> i & 1}

        def is_before(i: int, j: int) -> bool:
            return bool(reach[j] >> i & 1) and not reach[i] >> j & 1

        height: dict[int, int] = {}

        def height_of(i: int) -> int:
            if i not in height:
                above = [height_of(j) + 1 for j in moving if j != i and is_before(i, j)]
                height[i] = max(above, default=0)
            return height[i]

        top = max(map(height_of, moving), default=-1)
        return [
            (
                [i for i in moving if height[i] == level and i not in loops],
                [i for i in moving if height[i] == level and i in loops],
            )
            for level in range(top, -1, -1)
        ]

    def sources(self, leaf: int) -> tuple[Var | Literal, ...]:
        """What a leaf is made of at each step: its value, or a mask and a value."""
        return self.held.get(leaf, (self.after[leaf],))

    def _needs_of(self, atom: Var | Literal) -> int:
        return 0 if isinstance(atom, Literal) else self._needs[atom]

    def _needed(
        self, targets: Iterable[Var | Literal], is_given: Callable[[Var], bool]
    ) -> tuple[list[JaxprEqn], set[Var]]:
        """The equations that lead to `targets` from what is given, and what of that they use."""
        used: set[Var] = set()
        indices: set[int] = set()
        open_ = variables_of(targets)
        while open_:
            variable = open_.pop()
            index = self._source.get(variable)
            if index is None or is_given(variable):  # nothing leads to an argument
                used.add(variable)
            elif index not in indices:
                indices.add(index)
                open_ += variables_of(self.jaxpr.eqns[index].invars)
        return [self.jaxpr.eqns[index] for index in sorted(indices)], used

    def _cheap_variables(self) -> set[Var]:
        """The variables that had better be computed again where they are needed."""
        cheap: set[Var] = set()
        origin = {variable: num_bytes(variable) for variable in self.jaxpr.invars}
        for equation in self.jaxpr.eqns:
            name, inputs = equation.primitive.name, variables_of(equation.invars)
            for variable in equation.outvars:
                size = num_bytes(variable)
                moves = variable not in self.fixed
                cost = sum(origin[v] for v in inputs if not (moves and v in self.fixed))
                is_larger = name in CHEAP | ELEMENTWISE and cost < size
                if not inputs or is_larger or (moves and name in CHEAP and cost == size):
                    cheap.add(variable)
                    size = cost
                origin[variable] = size
        return cheap

    def _is_cheap(self, variable: Var) -> bool:
        return variable in self._cheap

    @property
    def num_bytes(self) -> int:
        """About how much one step of one sequence holds outside of the loops."""
        total, largest = 0, 0
        for stage in self.stages:
            moving = [v for eqn in stage.ahead for v in eqn.outvars if v not in self.fixed]
            largest = max([largest, *map(num_bytes, moving)])
            if stage.loop is not None:
                total += _size(stage.loop.scanned + stage.loop.kept)
        return total + 2 * largest


def _is_choice(equation: JaxprEqn, fixed: set[Var]) -> bool:
    """Whether the equation looks at values of its step; a choice of platform is none."""
    name = equation.primitive.name
    if "callback" in name:
        return True
    if name not in CHOICES:
        return False
    asked = equation.invars[:1] if name == "cond" else equation.invars
    return any(variable not in fixed for variable in variables_of(asked))


def _size(variables: list[Var]) -> int:
    return sum(map(num_bytes, variables))
