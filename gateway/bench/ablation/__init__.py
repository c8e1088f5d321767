"""What each part of the product adds, one put on after another, by the real gateway and worker."""
