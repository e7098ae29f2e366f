"""Photos from files: whatever Pillow opens, as upright 8-bit RGB."""

from .images.photo_files import ENDINGS, MOST, Photo, as_photo, photos, place_of, read

__all__ = ["ENDINGS", "MOST", "Photo", "as_photo", "photos", "place_of", "read"]
