class Thing:
    def area(self, width, height):
        return width * height
