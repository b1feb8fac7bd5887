// figures as a person reads them; nothing here touches the page
const grouped = (count) => Math.round(count).toLocaleString("en-US");

// at most four characters or so: 940, 3.2k, 140k, 2.1M
function short(count) {
  for (const [at, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (count >= at * 0.9995) {
      const scaled = count / at;
      return scaled.toFixed(scaled < 99.95 ? 1 : 0) + unit;
    }
  }
  return String(Math.round(count));
}

// seconds as [number, unit]
function time(seconds) {
  const ms = seconds * 1e3;
  if (ms < 9.995) return [ms.toFixed(2), "ms"];
  if (ms < 99.95) return [ms.toFixed(1), "ms"];
  if (ms < 999.5) return [ms.toFixed(0), "ms"];
  if (seconds < 9.995) return [seconds.toFixed(2), "s"];
  if (seconds < 99.95) return [seconds.toFixed(1), "s"];
  return [seconds.toFixed(0), "s"];
}
const timeText = (seconds) => (seconds === null ? "–" : time(seconds).join(" "));
const percent = (share) => (share === null ? "–" : (share * 100).toFixed(share < 0.0995 && share > 0 ? 1 : 0) + " %");

function age(seconds) {
  if (seconds < 1.5) return "now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return `${Math.round(seconds / 3600)} h ago`;
}

function rate(perSecond) {
  if (perSecond > 0 && perSecond < 10) return perSecond.toFixed(1);
  return perSecond < 1000 ? perSecond.toFixed(0) : short(perSecond);
}

const plural = (count, one, many) => `${grouped(count)} ${count === 1 ? one : many ?? one + "s"}`;
const clock = (date) => date.toLocaleTimeString("en-GB");

// elements, with text that is always only text
function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
const byId = (id) => document.getElementById(id);
// writing what is there already would make the browser lay out the page again
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function show(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

// a series of the last minutes as a line; time runs to the right, null is a gap
const SPAN = 180;
const SHORTEST = 40;
function spark(svg, points, now) {
  const span = Math.min(SPAN, Math.max(SHORTEST, now - (points[0]?.at ?? now)));
  const seen = points.filter((point) => point.value !== null && now - point.at <= SPAN);
  const top = Math.max(...seen.map((point) => point.value), 0) || 1;
  const x = (at) => (100 * (1 - (now - at) / span)).toFixed(2);
  const y = (value) => (32 - 29 * (value / top)).toFixed(2);
  let line = "";
  let area = "";
  let last = null;
  for (const point of points) {
    if (point.value === null || now - point.at > SPAN) {
      continue;
    }
    const starts = last === null || point.at - last.at > 5;
    if (starts && last !== null) area += `L${x(last.at)} 33Z`;
    line += `${starts ? "M" : "L"}${x(point.at)} ${y(point.value)}`;
    area += starts ? `M${x(point.at)} 33L${x(point.at)} ${y(point.value)}` : `L${x(point.at)} ${y(point.value)}`;
    last = point;
  }
  if (last !== null) area += `L${x(last.at)} 33Z`;
  if (!svg.firstChild) {
    svg.setAttribute("viewBox", "0 0 100 34");
    svg.setAttribute("preserveAspectRatio", "none");
    for (const name of ["base", "area", "line"]) {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("class", name);
      svg.append(path);
    }
    svg.children[0].setAttribute("d", "M0 33.5H100");
  }
  svg.children[1].setAttribute("d", area);
  svg.children[2].setAttribute("d", line);
}
