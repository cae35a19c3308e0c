def helper(size, scale=1):
    total = size * scale
    for step in range(total):
        if step > size:
            total += step
    return total


def other():
    return 2
