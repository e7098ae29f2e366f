// A link to an input opens it.
const openTarget = () => {
  const one = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!(one instanceof HTMLDetailsElement)) return;
  one.open = true;
  one.scrollIntoView();
};
addEventListener("hashchange", openTarget);
openTarget();
