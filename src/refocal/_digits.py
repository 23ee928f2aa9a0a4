"""The digits that make a sentence true as it is read: of numbers that differ, and of p-values next to a level."""

from __future__ import annotations


def digits_apart(first: float, second: float, least: int) -> int:
    """The digits after the point, `least` or more, with which two numbers are written differently.

    Numbers that are equal but for rounding have `least`.

    >>> digits_apart(1.23, 1.29, least=2), digits_apart(0.01234, 0.01228, least=4), digits_apart(0.5, 0.5, least=4)
    (2, 5, 4)
    """
    most = 12
    differing = (digits for digits in range(least, most + 1) if round(first, digits) != round(second, digits))
    return next(differing, least)


def digits_of(number: float, least: int) -> int:
    """The digits after the point, `least` or more, that a number has but for rounding.

    >>> digits_of(100 * 0.07, least=2), digits_of(2.0045, least=2)
    (2, 4)
    """
    most = 12
    exact = (digits for digits in range(least, most) if abs(round(number, digits) - number) <= 1e-12 * abs(number))
    return next(exact, most)


def p_value_text(p_value: float, limit: float) -> str:
    """A p-value with a sign, in three digits or as many as say on which side of the limit it is.

    >>> p_value_text(0.0123, 0.05), p_value_text(0.0499, 0.05), p_value_text(0.0502, 0.05), p_value_text(1e-9, 0.05)
    ('= 0.012', '= 0.0499', '= 0.0502', '< 0.001')
    """
    smallest = 0.001
    if p_value < smallest < limit:
        return f"< {smallest:g}"
    digits = digits_apart(p_value, limit, least=3)
    return f"= {p_value:.{digits}f}"
