def run(a: int, b: bytes):
    return a
