// SPDX-License-Identifier: Apache-2.0
// Pages of reports: the figures of a table as CSV or Markdown, those of all tables as JSON.
"use strict";

function figuresOf(table) {
	return Array.from(table.rows, row => Array.from(row.cells, cell => cell.innerText.replace(/\s+/g, " ").trim()));
}

function offer(after, label, name, type, text) {
	const link = document.createElement("a");

	link.textContent = label;
	link.className = "get";
	link.download = name;
	link.href = "#";
	link.addEventListener("click", () => {
		link.href = URL.createObjectURL(new Blob([text()], { type }));
	});
	after.after(link);
}

const tables = Array.from(document.querySelectorAll(".scroll table"));
const quote = text => /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;

const markdown = row => `| ${row.map(text => text.replaceAll("|", "\\|")).join(" | ")} |\n`;

tables.forEach((table, i) => {
	offer(table.parentElement, "Markdown", `table-${i + 1}.md`, "text/markdown", () => {
		const [head, ...rows] = figuresOf(table);

		return [head, head.map(() => "---"), ...rows].map(markdown).join("");
	});
	offer(table.parentElement, "CSV", `table-${i + 1}.csv`, "text/csv",
		() => figuresOf(table).map(row => row.map(quote).join(",") + "\n").join(""));
});
if (tables.length)
	offer(document.querySelector("main").lastElementChild, "All tables as JSON", "tables.json", "application/json",
		() => JSON.stringify(tables.map(figuresOf)));
