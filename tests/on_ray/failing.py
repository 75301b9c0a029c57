"""Tasks that go wrong, where workers can import them."""


def fail_or_not(number: int) -> int:
    if number == 2:
        raise ValueError(f"number {number} is bad")
    return number


def tiny(number: int) -> dict[str, int]:
    return {"number": number}
