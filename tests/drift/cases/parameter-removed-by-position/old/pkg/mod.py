def run(a, groups, device, dtype):
    return a
