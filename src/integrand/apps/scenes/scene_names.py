"""The classes that the networks of scenes were trained on, in the order of their outputs."""

from __future__ import annotations

COCO = (
    "person, bicycle, car, motorbike, aeroplane, bus, train, truck, boat, traffic light, fire hydrant, stop sign, parking "
    "meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack, umbrella, handbag, tie, "
    "suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, tennis "
    "racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, hot dog, "
    "pizza, donut, cake, chair, sofa, potted plant, bed, dining table, toilet, tv, laptop, mouse, remote, keyboard, cell "
    "phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, teddy bear, hair drier, toothbrush"
).split(", ")
"""The 80 classes of objects in COCO."""

CITYSCAPES = (
    "road, sidewalk, building, wall, fence, pole, traffic light, traffic sign, vegetation, terrain, sky, person, rider, car, "
    "truck, bus, train, motorcycle, bicycle, background"
).split(", ")
"""The 19 classes of street scenes in Cityscapes, and one for everything else."""
