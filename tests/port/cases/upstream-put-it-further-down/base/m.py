def run(x):
    one(x)
    two(x)
    three(x)
    four(x)
    five(x)
    six(x)
    seven(x)
    eight(x)
