// Texts of which one sees too little: each with its colour, its ground, and their ratio.
(() => {
  // A canvas knows every way to write a colour.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parts = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const ground = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      const layer = parts(getComputedStyle(at).backgroundColor);
      layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const light = (channel) => {
    const part = channel / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  };
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const poor = [];
  let looked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    const isSeen = node.checkVisibility({ visibilityProperty: true }) && !node.closest(".unseen, .skip");
    if (text === "" || !isSeen) continue;
    looked += 1;
    const style = getComputedStyle(node);
    const below = ground(node);
    const colour = over(parts(node.closest("svg") ? style.fill : style.color), below);
    const [one, other] = [luminance(colour), luminance(below)].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) poor.push({ text: text.slice(0, 40), ratio: ratio.toFixed(2), node: node.outerHTML.slice(0, 80) });
  }
  return { poor, looked };
})()
