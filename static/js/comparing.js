// Keys of rollouts side by side: through a sequence of comparisons, and to where the attempts part.

function follow(rel) {
  const link = () => document.querySelector(`a[rel="${rel}"]`);
  return { run: () => link().click(), when: () => link() !== null };
}

gymweb.keys.add({ id: "comparing.next", keys: "j", label: "Next comparison", group: "Comparing", ...follow("next") });
gymweb.keys.add({ id: "comparing.previous", keys: "k", label: "Previous comparison", group: "Comparing", ...follow("prev") });
gymweb.keys.add({
  id: "comparing.divergence",
  keys: "d",
  label: "Where they part",
  group: "Comparing",
  run: () => { location.hash = ""; location.hash = "divergence"; },
  when: () => document.getElementById("divergence") !== null,
});
