"""Axis expressions: products, sums, cuts, and how two axes become one."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onebasin.symmetry import axes
from onebasin.symmetry.axes import ANY, FIXED, Atom, Clash, Product, Sum


def sizes(product: Product) -> list:
    """The shape of a resolved expression: sizes of atoms, sums as lists of their segments."""
    return [
        item.size if isinstance(item, Atom) else [sizes(segment) for segment in item.segments]
        for item in axes.resolve(product)
    ]


def atom(n: int) -> Product:
    return (Atom(n),)


def together(*parts: Product) -> Product:
    return axes.concatenate(parts)


@st.composite
def products(draw: st.DrawFn) -> Product:
    """One or two items, each an atom or a sum, nested; atoms may occur again."""
    known: list[Product] = []

    def product(depth: int) -> Product:
        items: Product = ()
        for _ in range(draw(st.integers(1, 2))):
            if depth and draw(st.booleans()):
                items += together(*(product(depth - 1) for _ in range(draw(st.integers(2, 3)))))
            elif draw(st.booleans()) and known:
                items += known[draw(st.integers(0, len(known) - 1))]
            else:
                known.append(atom(draw(st.integers(2, 5))))
                items += known[-1]
        return items

    found = product(2)
    assume(axes.size(found) <= 500)
    return found


def flat_terms(product: Product) -> list[axes.Term]:
    return axes.terms(axes.resolve(product))


def term_sizes(terms: list[axes.Term]) -> int:
    return sum(axes.size(term) for term in terms)


def test_size_one_is_the_empty_product() -> None:
    assert axes.fresh(1) == ()
    assert axes.size(()) == 1
    assert axes.terms(()) == [()]
    assert sizes(together((), ())) == [[[], []]]
    assert axes.size(together((), ())) == 2


def test_size_zero_disappears_when_laid_end_to_end() -> None:
    nothing, five = axes.fresh(0), atom(5)
    assert axes.size(nothing) == 0
    assert together(nothing, five, nothing) == five
    assert axes.size(together(nothing, nothing)) == 0


def test_nested_sums_are_spliced() -> None:
    two, three, four = atom(2), atom(3), atom(4)
    assert together(together(two, three), four) == together(two, together(three, four))
    assert sizes(together(together(two, three), four)) == [[[2], [3], [4]]]


def test_split_refines_an_atom_wherever_it_stands() -> None:
    twelve = atom(12)
    elsewhere = (*twelve, *atom(5))
    outer, inner = axes.split(twelve, 3)
    assert (sizes(outer), sizes(inner)) == ([3], [4])
    assert axes.resolve(elsewhere)[:2] == (*outer, *inner)


@pytest.mark.parametrize(
    ("factors", "outer", "expected"),
    [
        ((4, 3), 4, ([4], [3])),
        ((4, 3), 2, ([2], [2, 3])),
        ((4, 6), 8, ([4, 2], [3])),
        ((4, 3), 12, ([4, 3], [])),
        ((4, 3), 1, ([], [4, 3])),
    ],
)
def test_split_of_a_product(factors: tuple[int, ...], outer: int, expected: tuple) -> None:
    product = tuple(Atom(n) for n in factors)
    first, rest = axes.split(product, outer)
    assert (sizes(first), sizes(rest)) == expected


@pytest.mark.parametrize(("factors", "outer"), [((4, 5), 5), ((6,), 4), ((4, 3), 6), ((0,), 2)])
def test_split_that_does_not_divide(factors: tuple[int, ...], outer: int) -> None:
    with pytest.raises(Clash):
        axes.split(tuple(Atom(n) for n in factors), outer)


def test_split_of_a_sum_ties_the_inner_axes() -> None:
    """(2 heads + 3 heads) of one head size: the segments share what is inside."""
    outer, inner = axes.split(together(atom(8), atom(12)), 5)
    assert (sizes(outer), sizes(inner)) == ([[[2], [3]]], [4])


def test_split_across_a_segment_clashes() -> None:
    with pytest.raises(Clash):
        axes.split(together(atom(7), atom(5)), 3)


def test_cut_refines_an_atom_wherever_it_stands() -> None:
    seven = atom(7)
    first, second = axes.cut(seven, 3)
    assert (sizes(first), sizes(second)) == ([3], [4])
    assert axes.resolve(seven) == together(first, second)


def test_cut_at_the_ends_refines_nothing() -> None:
    seven = atom(7)
    for position in (0, 7):
        assert {axes.size(part) for part in axes.cut(seven, position)} == {0, 7}
    assert sizes(seven) == [7]


def test_cut_inside_a_product_takes_one_row_apart() -> None:
    """4 rows of 3, cut after 5 entries: row 0, row 1 in two parts, rows 2 and 3."""
    rows, columns = atom(4), atom(3)
    before, after = axes.cut((*rows, *columns), 5)
    assert sizes(rows) == [[[], [], [2]]]
    assert sizes(columns) == [[[2], [1]]] or sizes(columns) == [[[2], []]]
    assert (axes.size(before), axes.size(after)) == (5, 7)


@given(products(), st.data())
def test_cut_loses_nothing(product: Product, data: st.DataObject) -> None:
    whole = axes.size(product)
    position = data.draw(st.integers(0, whole))
    first, second = axes.cut(product, position)
    assert (axes.size(first), axes.size(second)) == (position, whole - position)
    parts = [flat_terms(part) for part in (first, second) if axes.size(part)]
    assert [t for part in parts for t in part] == flat_terms(product)


@given(products(), st.data())
def test_split_keeps_sizes(product: Product, data: st.DataObject) -> None:
    whole = axes.size(product)
    outer = data.draw(st.sampled_from([d for d in range(1, whole + 1) if whole % d == 0]))
    try:
        first, rest = axes.split(product, outer)
    except Clash:
        assert axes.size(axes.resolve(product)) == whole
        return
    assert (axes.size(first), axes.size(rest)) == (outer, whole // outer)
    assert axes.resolve(first + rest) == axes.resolve(product)


@given(products())
def test_resolving_twice_changes_nothing(product: Product) -> None:
    once = axes.resolve(product)
    assert axes.resolve(once) == once
    assert axes.size(once) == axes.size(product)
    assert term_sizes(axes.terms(once)) == axes.size(product)
    assert not (len(once) > 1 and isinstance(once[0], Sum))


@given(st.data())
def test_unified_axes_are_one(data: st.DataObject) -> None:
    left, right = data.draw(products()), data.draw(products())
    if axes.size(left) != axes.size(right):
        rest = abs(axes.size(left) - axes.size(right))
        small, large = sorted((left, right), key=axes.size)
        left, right = together(small, axes.fresh(rest)), large
    try:
        axes.unify(left, right)
    except Clash:
        return
    assert axes.resolve(left) == axes.resolve(right)


def test_unify_by_divisors() -> None:
    twelve, product = atom(12), (*atom(3), *atom(4))
    axes.unify(twelve, product)
    assert axes.resolve(twelve) == axes.resolve(product)
    assert sizes(twelve) == [3, 4]


def test_unify_meets_two_factorings() -> None:
    left, right = (*atom(2), *atom(6)), (*atom(4), *atom(3))
    axes.unify(left, right)
    assert sizes(left) == sizes(right) == [2, 2, 3]


def test_unify_by_cuts() -> None:
    left, right = together(atom(2), atom(5)), together(atom(4), atom(3))
    axes.unify(left, right)
    assert sizes(left) == sizes(right) == [[[2], [2], [3]]]


@pytest.mark.parametrize("turned", [False, True])
def test_an_index_set_that_meets_a_sum_becomes_it(turned: bool) -> None:
    """Without cuts, so that a long chain of concatenations takes no longer than it must."""
    whole, parts = atom(9), together(atom(4), (*atom(2), *atom(2)), ())
    before = Atom(1).number
    axes.pin(whole)
    axes.unify(*((parts, whole) if turned else (whole, parts)))
    assert Atom(1).number == before + 1
    assert axes.resolve(whole) == parts
    assert all(each.pinned for each in axes.atoms(parts))


def test_unify_an_axis_with_itself_shifted() -> None:
    """h[1:] + h[:-1]: all entries become one another, one index set of size one each."""
    five = atom(5)
    _, tail = axes.cut(five, 1)
    head, _ = axes.cut(five, 4)
    axes.unify(head, tail)
    assert axes.resolve(head) == axes.resolve(tail)
    assert set(axes.terms(axes.resolve(five))) == {()}


def test_unify_carries_pins_over() -> None:
    left, right = atom(4), (Atom(2, pinned=True), Atom(2))
    axes.unify(left, right)
    assert [a.pinned for a in axes.atoms(axes.resolve(left))] == [True, False]
    pinned = (Atom(6, pinned=True),)
    axes.split(pinned, 2)
    assert all(a.pinned for a in axes.atoms(axes.resolve(pinned)))


def test_a_clash_pins_both() -> None:
    left, right = (*atom(4), *atom(5)), (*atom(5), *atom(4))
    with pytest.raises(Clash):
        axes.unify(left, right)
    axes.meet([left, right])
    assert all(a.pinned for a in axes.atoms(axes.resolve(left) + axes.resolve(right)))


def test_uniform_axes_tie_nothing() -> None:
    left, right = atom(4), atom(4)
    assert axes.meet([left, ANY]) == left
    assert axes.meet([ANY, ANY]) is ANY
    assert axes.meet([]) is ANY
    assert axes.resolve(left) != axes.resolve(right)
    assert not left[0].pinned


@pytest.mark.parametrize("order", [1, -1])
def test_fixed_axes_pin_what_they_meet(order: int) -> None:
    product = together(atom(2), (*atom(3), *atom(4)))
    mixed: list[axes.Axis] = [product, FIXED, ANY]
    assert axes.meet(mixed[::order]) == product
    assert all(a.pinned for a in axes.atoms(axes.resolve(product)))


def test_pins_reach_what_an_atom_becomes() -> None:
    twelve = atom(12)
    axes.pin(twelve)
    axes.cut(twelve, 5)
    axes.pin(ANY)
    assert [a.pinned for a in axes.atoms(axes.resolve(twelve))] == [True, True]


def test_too_many_segments_clash() -> None:
    long = atom(axes.MAX_SEGMENTS + 10)
    for position in range(1, axes.MAX_SEGMENTS):
        axes.cut(long, position)
    with pytest.raises(Clash):
        axes.cut(long, axes.MAX_SEGMENTS)


def test_terms_of_a_product_of_sums() -> None:
    rows, columns = atom(2), together(atom(3), atom(4))
    assert [axes.size(t) for t in axes.terms((*rows, *columns))] == [6, 8]
    spread = axes.resolve((*columns, *rows))
    assert sizes(spread) == [[[3, 2], [4, 2]]]
