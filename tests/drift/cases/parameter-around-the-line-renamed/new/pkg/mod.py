def run(first_value, b):
    return first_value + b
