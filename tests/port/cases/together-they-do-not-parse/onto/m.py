def f(done, log):
    items = [
        1,
    ] + [
    done()
    ]
    return items
