class Thing:
    @staticmethod
    def area(width, height):
        return width * height
