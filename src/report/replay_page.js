// SPDX-License-Identifier: Apache-2.0
// Hover values of a replay's page.  Without this script the page still shows everything else.
"use strict";
(() => {
	const data = JSON.parse(document.getElementById("data").textContent);
	const tip = document.getElementById("tip");
	const SVG = "http://www.w3.org/2000/svg";

	// --- Values ----------------------------------------------------------------------------

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

	function cells(tag, texts) {
		const row = document.createElement("tr");
		for (const text of texts) {
			const cell = document.createElement(tag);
			cell.textContent = text;
			row.append(cell);
		}
		return row;
	}

	// All panels at one step, and which tensor is the worst of the panel pointed at.
	function describe(here, at) {
		const head = document.createElement("div"), name = document.createElement("div");
		const table = document.createElement("table");
		const tensor = data.panels[here].tensor[at];

		head.textContent = `Step ${data.first + at}`;
		table.append(cells("th", ["", "all", "worst"]));
		data.panels.forEach((panel, i) => {
			const row = cells("td", [panel.title, show(panel.total[at], panel),
				show(panel.worst[at], panel)]);
			row.classList.toggle("here", i === here);
			table.append(row);
		});
		if (tensor !== null && hasValue(here, at))
			name.textContent = `Worst: ${data.names[tensor]}`;
		else if (!hasValue(here, at))
			name.textContent = "This step was skipped.";
		return [head, table, name];
	}

	function hasValue(here, at) {
		return data.panels[here].total[at] !== null;
	}

	// --- Pointing --------------------------------------------------------------------------

	function hide() {
		tip.hidden = true;
		for (const guide of document.querySelectorAll(".guide"))
			guide.remove();
	}

	function numbers(panel) {
		const read = key => Number(panel.dataset[key]);
		return { left: read("left"), right: read("right"), top: read("top"),
			bottom: read("bottom"), index: read("panel") };
	}

	function xOf(p, at) {
		return data.n < 2 ? p.left : p.left + at * (p.right - p.left) / (data.n - 1);
	}

	// The same step in every panel.
	function pointTo(svg, panel, at) {
		const here = numbers(panel);
		const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;

		hide();
		for (const other of svg.querySelectorAll(".panel")) {
			const p = numbers(other), x = xOf(p, at);
			const guide = document.createElementNS(SVG, "line");

			guide.setAttribute("class", "guide");
			for (const [key, value] of [["x1", x], ["x2", x], ["y1", p.top], ["y2", p.bottom]])
				guide.setAttribute(key, value);
			other.append(guide);
		}
		tip.replaceChildren(...describe(here.index, at));
		tip.dataset.at = at;
		tip.dataset.panel = here.index;
		tip.hidden = false;
		if (svg.id === "narrow")
			tip.removeAttribute("style");
		else
			place(svg.getBoundingClientRect(), xOf(here, at) * scale, here.top * scale);
	}

	// Beside the guide, on the side with more room, inside the window.
	function place(box, x, y) {
		const at = box.left + x, room = document.documentElement.clientWidth;
		const left = at > room / 2 ? at - tip.offsetWidth - 12 : at + 12;
		const top = Math.min(box.top + y + 8, window.innerHeight - tip.offsetHeight - 8);

		tip.style.left = `${Math.max(8, Math.min(left, room - tip.offsetWidth - 8))}px`;
		tip.style.top = `${Math.max(8, top)}px`;
	}

	function point(svg, event) {
		const box = svg.getBoundingClientRect();
		const scale = svg.viewBox.baseVal.width / box.width;
		const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;

		for (const panel of svg.querySelectorAll(".panel")) {
			const p = numbers(panel);

			if (y < p.top - 8 || y > p.bottom + 8 || x < p.left - 16 || x > p.right + 16)
				continue;
			const share = (x - p.left) / Math.max(1, p.right - p.left);
			const at = Math.round(share * (data.n - 1));
			pointTo(svg, panel, Math.max(0, Math.min(data.n - 1, at)));
			return;
		}
		hide();
	}

	// Left and right move by one step, up and down between the panels.
	function key(svg, event) {
		const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
		const turn = { ArrowUp: -1, ArrowDown: 1 }[event.key];
		const panels = [...svg.querySelectorAll(".panel")];
		const last = tip.hidden ? 0 : Number(tip.dataset.panel);

		if (event.key === "Escape")
			hide();
		if (!step && !turn)
			return;
		event.preventDefault();
		const i = Math.max(0, Math.min(panels.length - 1, last + (turn || 0)));
		const at = tip.hidden ? 0 : Number(tip.dataset.at) + (step || 0);
		pointTo(svg, panels[i], Math.max(0, Math.min(data.n - 1, at)));
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
})();
