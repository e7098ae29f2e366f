"""Photos from files of the usual formats, within stated limits, as upright 8-bit RGB."""

from .images.photo_files import ENDINGS, Photo, as_photo, photos, place_of, read, read_data
from .images.photo_headers import MOST

__all__ = ["ENDINGS", "MOST", "Photo", "as_photo", "photos", "place_of", "read", "read_data"]
