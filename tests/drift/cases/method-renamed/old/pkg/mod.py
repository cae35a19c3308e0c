class Thing:
    def helper(self, size, scale=1):
        total = size * scale
        for step in range(total):
            if step > size:
                total += step
        return total

    def run(self):
        return self.helper(2)
