def run(a: int, b: str):
    return a
