// The strip of tokens: one tab stop, arrow keys within, and a description of the focused token.

function walkTokens(strip) {
  const told = document.getElementById("token-told");
  const tokens = [...strip.children];
  let at = 0;

  function go(index) {
    tokens[at].tabIndex = -1;
    at = Math.min(Math.max(index, 0), tokens.length - 1);
    tokens[at].tabIndex = 0;
    tokens[at].focus();
  }

  // Move to the nearest token in the line above or below.
  function line(way) {
    const from = tokens[at].getBoundingClientRect();
    const beyond = tokens.map((token, index) => [token.getBoundingClientRect(), index])
      .filter(([box]) => (way > 0 ? box.top > from.top + 2 : box.top < from.top - 2));
    if (!beyond.length) return at;
    const next = way > 0 ? beyond[0][0].top : beyond[beyond.length - 1][0].top;
    const nearest = beyond.filter(([box]) => Math.abs(box.top - next) < 2)
      .reduce((one, other) => (Math.abs(other[0].left - from.left) < Math.abs(one[0].left - from.left) ? other : one));
    return nearest[1];
  }

  const KEYS = {
    ArrowRight: () => at + 1,
    ArrowLeft: () => at - 1,
    ArrowDown: () => line(1),
    ArrowUp: () => line(-1),
    Home: () => 0,
    End: () => tokens.length - 1,
  };

  tokens[0].tabIndex = 0;
  strip.addEventListener("keydown", (event) => {
    if (!Object.hasOwn(KEYS, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    go(KEYS[event.key]());
  });
  strip.addEventListener("click", (event) => {
    const index = tokens.indexOf(event.target.closest(".token"));
    if (index >= 0) go(index);
  });
  strip.addEventListener("focusin", (event) => { told.textContent = event.target.title; });
}

const strip = document.querySelector(".tokens");
if (strip) walkTokens(strip);
