def run(first, scale, second, third):
    return first
