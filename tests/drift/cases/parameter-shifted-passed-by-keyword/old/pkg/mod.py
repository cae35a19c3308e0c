def run(first, second, third):
    return first
