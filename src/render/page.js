// SPDX-License-Identifier: Apache-2.0
// Pages of reports: values of the place in a chart that is pointed at.
"use strict";

function tableRow(tag, texts) {
	const row = document.createElement("tr");
	for (const text of texts) {
		const cell = document.createElement(tag);
		cell.textContent = text;
		row.append(cell);
	}
	return row;
}

// Places are the integers from area.first to area.last along the x axis of a panel.  `areaOf` has
// these of a panel; `describe` is what to show of a place; `guided` are the panels that mark it.
function showValues({ areaOf, describe, guided }) {
	const tip = document.getElementById("tip");
	let here = null; // the panel and place that are shown

	function hide() {
		tip.hidden = true;
		for (const guide of document.querySelectorAll(".guide"))
			guide.remove();
	}

	function read(panel) {
		const number = key => Number(panel.dataset[key]);
		return { left: number("left"), right: number("right"), top: number("top"),
			bottom: number("bottom"), ...areaOf(panel) };
	}

	function xOf(area, at) {
		const share = (at - area.first) / Math.max(1, area.last - area.first);
		return area.left + share * (area.right - area.left);
	}

	function mark(panel, at) {
		const area = read(panel), x = xOf(area, at);
		const guide = document.createElementNS("http://www.w3.org/2000/svg", "line");

		guide.setAttribute("class", "guide");
		for (const [key, value] of [["x1", x], ["x2", x], ["y1", area.top], ["y2", area.bottom]])
			guide.setAttribute(key, value);
		panel.append(guide);
	}

	// Beside the guide, on the side with more room, inside the window.
	function place(box, x, y) {
		const at = box.left + x, room = document.documentElement.clientWidth;
		const left = at > room / 2 ? at - tip.offsetWidth - 12 : at + 12;
		const top = Math.min(box.top + y + 8, window.innerHeight - tip.offsetHeight - 8);

		tip.style.left = `${Math.max(8, Math.min(left, room - tip.offsetWidth - 8))}px`;
		tip.style.top = `${Math.max(8, top)}px`;
	}

	function show(svg, panel, wanted) {
		const area = read(panel), box = svg.getBoundingClientRect();
		const scale = box.width / svg.viewBox.baseVal.width;
		const at = Math.max(area.first, Math.min(area.last, wanted));

		hide();
		for (const other of guided(svg, panel))
			mark(other, at);
		tip.replaceChildren(...describe(panel, at));
		tip.dataset.panel = panel.dataset.panel;
		here = { panel, at };
		tip.hidden = false;
		if (svg.id === "narrow")
			tip.removeAttribute("style");
		else
			place(box, xOf(area, at) * scale, area.top * scale);
	}

	function point(svg, event) {
		const box = svg.getBoundingClientRect();
		const scale = svg.viewBox.baseVal.width / box.width;
		const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;

		for (const panel of svg.querySelectorAll(".panel")) {
			const a = read(panel);

			if (y < a.top - 8 || y > a.bottom + 8 || x < a.left - 16 || x > a.right + 16)
				continue;
			const share = (x - a.left) / Math.max(1, a.right - a.left);
			show(svg, panel, Math.round(a.first + share * (a.last - a.first)));
			return;
		}
		hide();
	}

	// Left and right move by one place, up and down between the panels.
	function key(svg, event) {
		const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key] || 0;
		const turn = { ArrowUp: -1, ArrowDown: 1 }[event.key] || 0;
		const panels = [...svg.querySelectorAll(".panel")];

		if (event.key === "Escape")
			hide();
		if (!step && !turn)
			return;
		event.preventDefault();
		const now = tip.hidden ? -1 : panels.indexOf(here.panel);
		const next = Math.max(0, Math.min(panels.length - 1, Math.max(0, now) + turn));
		show(svg, panels[next], now < 0 ? 0 : here.at + step);
	}

	for (const svg of document.querySelectorAll(".chart > svg")) {
		svg.setAttribute("tabindex", "0");
		svg.addEventListener("pointermove", event => point(svg, event));
		svg.addEventListener("pointerdown", event => point(svg, event));
		svg.addEventListener("pointerleave", event => {
			if (event.pointerType === "mouse")
				hide();
		});
		svg.addEventListener("keydown", event => key(svg, event));
		svg.addEventListener("blur", hide);
	}
	window.addEventListener("scroll", hide, { passive: true });
}

// --- Pages of sweeps -----------------------------------------------------------------------

// Toggles of a sweep's page, and the values of its chart.
function showSweep(codecs) {
	const boxes = [...document.querySelectorAll("input[data-codec]")];
	const checked = () => new Set(boxes.filter(b => b.checked).map(b => b.dataset.codec));

	// --- Toggles ---------------------------------------------------------------------------

	function apply(box) {
		const name = CSS.escape(box.dataset.codec);
		for (const line of document.querySelectorAll(`g.line[data-codec="${name}"]`))
			line.classList.toggle("off", !box.checked);
	}

	function onClick(id, choose) {
		document.getElementById(id).addEventListener("click", () => {
			for (const box of boxes) {
				box.checked = choose(box);
				apply(box);
			}
		});
	}

	const shownAtFirst = checked();
	for (const box of boxes)
		box.addEventListener("change", () => apply(box));
	onClick("none", () => false);
	onClick("all", () => true);
	onClick("reset", box => shownAtFirst.has(box.dataset.codec));
	// A browser may have kept the boxes of the last visit.
	boxes.forEach(apply);

	// --- Values ----------------------------------------------------------------------------

	// Rows are [first exponent, last exponent, patterns, exact, mean, max, ULP, overflow].
	function rowAt(codec, exponent) {
		return codec.rows.find(row => row[0] <= exponent && exponent <= row[1]);
	}

	function error(value) {
		return value ? value.toExponential(2).replace("-", "\u2212") : "0";
	}

	function percent(part, whole) {
		const p = 100 * part / whole;
		if (part === whole || !part)
			return `${p}%`;
		return p < 0.0001 ? "<0.0001%" : `${p.toFixed(p < 1 ? 4 : 2)}%`;
	}

	function values(panel, exponent) {
		const table = document.createElement("table"), on = checked();
		const found = codecs.filter(c => c.panel === panel && on.has(c.codec))
			.map(c => [c.codec, rowAt(c, exponent)]).filter(([, row]) => row);

		found.sort(([, a], [, b]) => b[4] - a[4]);
		table.append(tableRow("th", ["", "mean", "max", "exact"]));
		for (const [name, row] of found) {
			const over = row[7] === row[2];
			table.append(tableRow("td", over ? [name, "overflow", "", ""]
				: [name, error(row[4]), error(row[5]), percent(row[3], row[2])]));
		}
		return table;
	}

	function power(exponent) {
		const up = document.createElement("sup");
		up.textContent = String(exponent).replace("-", "\u2212");
		return ["2", up];
	}

	function range(exponent) {
		const head = document.createElement("div");
		if (exponent === -127)
			head.append("|x| below ", ...power(-126), " (FP32 subnormal)");
		else
			head.append("|x| from ", ...power(exponent), " to ", ...power(exponent + 1));
		return head;
	}

	showValues({
		areaOf: panel => ({ first: Number(panel.dataset.first), last: Number(panel.dataset.last) }),
		describe: (panel, at) => [range(at), values(panel.dataset.panel, at)],
		guided: (svg, panel) => [panel],
	});
}

// --- Pages of replays ----------------------------------------------------------------------

// The values of the charts in a replay's page.
function showReplay(data) {
	function show(value, panel) {
		if (value === null || value === undefined)
			return "\u2013";
		if (value === Infinity)
			return "\u221e";
		if (value === 0)
			return "0";
		if (panel.unit === "%")
			return `${value < 0.001 ? "<0.001" : Number(value.toPrecision(3))}%`;
		if (panel.unit === "ULP" && value < 1e6)
			return value.toLocaleString("en");
		return value.toExponential(2).replace("-", "\u2212");
	}

	// All panels at one step, and which tensor is the worst of the panel pointed at.
	function describe(here, at) {
		const head = document.createElement("div"), name = document.createElement("div");
		const table = document.createElement("table");
		const tensor = data.panels[here].tensor[at];

		head.textContent = `Step ${data.first + at}`;
		table.append(tableRow("th", ["", "all", "worst"]));
		data.panels.forEach((panel, i) => {
			const row = tableRow("td", [panel.title, show(panel.total[at], panel),
				show(panel.worst[at], panel)]);
			row.classList.toggle("here", i === here);
			table.append(row);
		});
		if (data.panels[here].total[at] === null)
			name.textContent = "This step was skipped.";
		else if (tensor !== null)
			name.textContent = `Worst: ${data.names[tensor]}`;
		return [head, table, name];
	}

	// The same step is marked in every panel.
	showValues({
		areaOf: () => ({ first: 0, last: data.n - 1 }),
		describe: (panel, at) => describe(Number(panel.dataset.panel), at),
		guided: svg => svg.querySelectorAll(".panel"),
	});
}

{
	const data = JSON.parse(document.getElementById("data").textContent);
	if (Array.isArray(data))
		showSweep(data);
	else
		showReplay(data);
}
