"""A classifier that learns digits 0-4 today, and 5-9 next month, in another process."""

import tempfile
from pathlib import Path

import ancl
from ancl.data import digits

source = digits()
images, labels = source.train.x, source.train.y
early, late = labels < 5, labels >= 5

training = ancl.Training(epochs=15, batch_size=32, lr=0.02, lr_first=0.05)
learner = ancl.Learner("wa", "mlp", training=training)  # keeps 20 images of each class
learner.learn(images[early], labels[early])

with tempfile.TemporaryDirectory() as folder:
    learner.save(Path(folder) / "digits")
    later = ancl.Learner.load(Path(folder) / "digits")

later.learn(images[late], labels[late])
test, truth = source.test.x, source.test.y
for task, chosen in enumerate((truth < 5, truth >= 5)):
    accuracy = later.evaluate(test[chosen], truth[chosen])  # among all ten
    print(f"digits {later.tasks[task]}: {accuracy:.1%}")
print(later.report())  # recall and precision of each digit, on images it never learned from
