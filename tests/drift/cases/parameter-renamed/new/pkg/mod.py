def run(a, cache: int = 0, last: str = ""):
    return a
